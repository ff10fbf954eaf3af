import com.sun.management.OperatingSystemMXBean;
import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.ConnectionFactory;
import jakarta.jms.DeliveryMode;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.util.Locale;
import org.apache.activemq.artemis.jms.client.ActiveMQJMSConnectionFactory;
import org.apache.qpid.jms.JmsConnectionFactory;

/**
 * What the benchmark measures this client against, in one virtual machine that stays warm. A line in is a task, a line out is the
 * seconds and the CPU seconds of it:
 *
 *   receive qpid|core auto|dups URL QUEUE COUNT     COUNT messages that are there already, from the second on; id and body are read
 *   send qpid|core URL QUEUE COUNT BYTES            COUNT non-persistent ones, until the connection is closed
 */
public class BenchPeer {
    private static final OperatingSystemMXBean SYSTEM = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    private static final long PATIENCE = 30_000;

    private long began;
    private long busy;

    public static void main(String[] arguments) throws Exception {
        BufferedReader tasks = new BufferedReader(new InputStreamReader(System.in));
        for (String task = tasks.readLine(); task != null; task = tasks.readLine()) {
            String[] words = task.split(" ");
            System.out.println(words[0].equals("send") ? new BenchPeer().send(words) : new BenchPeer().receive(words));
        }
        System.exit(0);
    }

    private String receive(String[] words) throws Exception {
        int mode = words[2].equals("dups") ? Session.DUPS_OK_ACKNOWLEDGE : Session.AUTO_ACKNOWLEDGE;
        int count = Integer.parseInt(words[5]);
        try (Connection connection = factory(words[1], words[3]).createConnection()) {
            Session session = connection.createSession(false, mode);
            MessageConsumer consumer = session.createConsumer(session.createQueue(words[4]));
            connection.start();
            read(consumer);
            start();
            for (int number = 1; number < count; number++) {
                read(consumer);
            }
            return elapsed();
        }
    }

    private static int read(MessageConsumer consumer) throws Exception {
        Message message = consumer.receive(PATIENCE);
        return message.getJMSMessageID().length() + message.getBody(byte[].class).length;
    }

    private String send(String[] words) throws Exception {
        int count = Integer.parseInt(words[4]);
        byte[] body = new byte[Integer.parseInt(words[5])];
        try (Connection connection = factory(words[1], words[2]).createConnection()) {
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            MessageProducer producer = session.createProducer(session.createQueue(words[3]));
            producer.setDeliveryMode(DeliveryMode.NON_PERSISTENT);
            start();
            for (int number = 0; number < count; number++) {
                BytesMessage message = session.createBytesMessage();
                message.writeBytes(body);
                producer.send(message);
            }
        }
        return elapsed();
    }

    private static ConnectionFactory factory(String client, String url) {
        return client.equals("core") ? new ActiveMQJMSConnectionFactory(url) : new JmsConnectionFactory(url);
    }

    private void start() {
        busy = SYSTEM.getProcessCpuTime();
        began = System.nanoTime();
    }

    private String elapsed() {
        double seconds = (System.nanoTime() - began) / 1e9;
        return String.format(Locale.ROOT, "%.6f %.6f", seconds, (SYSTEM.getProcessCpuTime() - busy) / 1e9);
    }
}
