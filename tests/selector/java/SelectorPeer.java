import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import org.apache.activemq.artemis.api.core.SimpleString;
import org.apache.activemq.artemis.selector.filter.BooleanExpression;
import org.apache.activemq.artemis.selector.filter.FilterException;
import org.apache.activemq.artemis.selector.filter.Filterable;
import org.apache.activemq.artemis.selector.impl.SelectorParser;

/**
 * Evaluates selectors with the classes of Artemis. A line in is a selector and its properties, parts separated by blanks:
 * the selector in Base64 of UTF-8, then name=TYPE:value with TYPE s (text, in Base64), l (long), d (double), b (boolean).
 * A line out: T (it matches), F (it does not), E (it is refused) or X (evaluating it failed).
 */
public final class SelectorPeer {

    public static void main(String[] arguments) throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(verdict(line.split(" ")));
        }
        out.flush();
    }

    private static String verdict(String[] parts) {
        BooleanExpression expression;
        try {
            expression = SelectorParser.parse(text(parts[0]));
        } catch (FilterException | RuntimeException refused) {
            return "E";
        }
        Map<String, Object> properties = new HashMap<>();
        for (int index = 1; index < parts.length; index++) {
            int equals = parts[index].indexOf('=');
            properties.put(parts[index].substring(0, equals), value(parts[index].substring(equals + 1)));
        }
        try {
            return expression.matches(new Properties(properties)) ? "T" : "F";
        } catch (FilterException | RuntimeException failed) {
            return "X";
        }
    }

    private static Object value(String written) {
        String rest = written.substring(2);
        return switch (written.charAt(0)) {
            case 's' -> text(rest);
            case 'l' -> (Object) Long.valueOf(rest);
            case 'd' -> (Object) Double.valueOf(rest);
            default -> (Object) Boolean.valueOf(rest);
        };
    }

    private static String text(String encoded) {
        return new String(Base64.getDecoder().decode(encoded), StandardCharsets.UTF_8);
    }

    private record Properties(Map<String, Object> values) implements Filterable {
        @Override
        public <T> T getBodyAs(Class<T> type) {
            return null;
        }

        @Override
        public Object getProperty(SimpleString name) {
            return values.get(name.toString());
        }

        @Override
        public Object getLocalConnectionId() {
            return null;
        }
    }
}
