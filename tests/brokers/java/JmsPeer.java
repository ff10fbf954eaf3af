import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.MapMessage;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageEOFException;
import jakarta.jms.MessageProducer;
import jakarta.jms.ObjectMessage;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.StreamMessage;
import jakarta.jms.TextMessage;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Enumeration;
import java.util.List;
import org.apache.qpid.jms.JmsConnectionFactory;

/**
 * JmsPeer send|receive URI USER QUEUE COUNT : a message of each JMS kind out, or a line about each message that comes in. The password is
 * in BROKER_PASSWORD. What is printed is read by test_amqp_java.py: a name and a value with its Java type, separated by tabs.
 */
public class JmsPeer {
    public static void main(String[] arguments) throws Exception {
        JmsConnectionFactory factory = new JmsConnectionFactory(arguments[2], System.getenv("BROKER_PASSWORD"), arguments[1]);
        try (Connection connection = factory.createConnection()) {
            connection.start();
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            Queue queue = session.createQueue(arguments[3]);
            if (arguments[0].equals("send")) {
                send(session, queue);
            } else {
                receive(session.createConsumer(queue), Integer.parseInt(arguments[4]));
            }
        }
    }

    private static void send(Session session, Queue queue) throws Exception {
        BytesMessage bytes = session.createBytesMessage();
        bytes.writeInt(7);
        bytes.writeByte((byte) -1);
        MapMessage map = session.createMapMessage();
        map.setInt("int", 1);
        map.setLong("long", 1L << 40);
        map.setDouble("double", 1.5);
        map.setFloat("float", 2.5f);
        map.setString("string", "v");
        map.setBoolean("boolean", true);
        map.setByte("byte", (byte) -3);
        map.setShort("short", (short) -4);
        map.setChar("char", 'z');
        map.setBytes("bytes", new byte[] {1, 2});
        map.setString("null", null);
        StreamMessage stream = session.createStreamMessage();
        stream.writeInt(1);
        stream.writeString("two");
        stream.writeDouble(3.0);
        stream.writeBytes(new byte[] {9});
        stream.writeChar('q');
        stream.writeString(null);
        List<Message> messages = List.of(
            session.createTextMessage("größe"), session.createTextMessage(null), bytes, map, stream,
            session.createObjectMessage(new ArrayList<>(List.of("o", 1))), session.createMessage());
        MessageProducer producer = session.createProducer(queue);
        int number = 0;
        for (Message message : messages) {
            message.setIntProperty("int", 5);
            message.setStringProperty("string", "é");
            message.setBooleanProperty("boolean", true);
            message.setDoubleProperty("double", 1.25);
            message.setLongProperty("long", 1L << 40);
            message.setByteProperty("byte", (byte) 1);
            message.setShortProperty("short", (short) 2);
            message.setFloatProperty("float", 0.5f);
            message.setStringProperty("JMSXGroupID", "g1");
            message.setIntProperty("JMSXGroupSeq", 3);
            message.setJMSType("mytype");
            message.setJMSCorrelationID(number == 0 ? "corr-1" : "ID:AMQP_UUID:00000000-0000-0000-0000-00000000000" + number);
            message.setJMSReplyTo(number % 2 == 0 ? session.createQueue("reply.q") : session.createTopic("reply.t"));
            producer.send(message, number % 2 == 0 ? DeliveryMode.PERSISTENT : DeliveryMode.NON_PERSISTENT, 7, 60000);
            System.out.println(message.getJMSMessageID());
            number++;
        }
    }

    private static void receive(MessageConsumer consumer, int count) throws Exception {
        for (int number = 0; number < count; number++) {
            Message message = consumer.receive(20000);
            if (message == null) {
                System.out.println("nothing came");
                return;
            }
            StringBuilder line = new StringBuilder(kind(message));
            say(line, "mode", message.getJMSDeliveryMode());
            say(line, "priority", message.getJMSPriority());
            say(line, "id", message.getJMSMessageID());
            say(line, "correlation", message.getJMSCorrelationID());
            say(line, "type", message.getJMSType());
            say(line, "reply", message.getJMSReplyTo());
            say(line, "destination", message.getJMSDestination());
            say(line, "redelivered", message.getJMSRedelivered());
            say(line, "count", message.getObjectProperty("JMSXDeliveryCount"));
            say(line, "expires", message.getJMSExpiration() > message.getJMSTimestamp() && message.getJMSTimestamp() > 0);
            body(line, message);
            List<String> names = new ArrayList<>();
            for (Enumeration<?> all = message.getPropertyNames(); all.hasMoreElements();) {
                names.add((String) all.nextElement());
            }
            Collections.sort(names);
            for (String name : names) {
                say(line, "." + name, message.getObjectProperty(name));
            }
            System.out.println(line);
        }
    }

    private static String kind(Message message) {
        return message instanceof TextMessage ? "TEXT"
            : message instanceof BytesMessage ? "BYTES"
            : message instanceof MapMessage ? "MAP"
            : message instanceof StreamMessage ? "STREAM"
            : message instanceof ObjectMessage ? "OBJECT" : "MESSAGE";
    }

    private static void body(StringBuilder line, Message message) throws Exception {
        if (message instanceof TextMessage) {
            say(line, "body", ((TextMessage) message).getText());
        } else if (message instanceof BytesMessage) {
            byte[] data = new byte[(int) ((BytesMessage) message).getBodyLength()];
            ((BytesMessage) message).readBytes(data);
            say(line, "body", data);
        } else if (message instanceof MapMessage) {
            List<?> names = Collections.list(((MapMessage) message).getMapNames());
            Collections.sort((List<String>) names);
            for (Object name : names) {
                say(line, "body." + name, ((MapMessage) message).getObject((String) name));
            }
        } else if (message instanceof StreamMessage) {
            try {
                for (int number = 0;; number++) {
                    say(line, "body." + number, ((StreamMessage) message).readObject());
                }
            } catch (MessageEOFException end) {
                return;
            }
        }
    }

    private static void say(StringBuilder line, String name, Object value) {
        String text = value instanceof byte[] ? Arrays.toString((byte[]) value) : String.valueOf(value);
        line.append('\t').append(name).append('=').append(text);
        if (name.startsWith("body") || name.startsWith(".")) {
            line.append(':').append(value == null ? "null" : value.getClass().getSimpleName());
        }
    }
}
