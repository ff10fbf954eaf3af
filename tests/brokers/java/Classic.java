import java.io.File;
import java.util.List;
import org.apache.activemq.broker.BrokerPlugin;
import org.apache.activemq.broker.BrokerService;
import org.apache.activemq.broker.region.policy.PolicyEntry;
import org.apache.activemq.broker.region.policy.PolicyMap;
import org.apache.activemq.security.AuthenticationUser;
import org.apache.activemq.security.AuthorizationEntry;
import org.apache.activemq.security.AuthorizationPlugin;
import org.apache.activemq.security.DefaultAuthorizationMap;
import org.apache.activemq.security.SimpleAuthenticationPlugin;

/** Classic FOLDER PORT USER : ActiveMQ Classic in this process, durable. The password is in BROKER_PASSWORD, not in the arguments;
 * it is that of the user poor, too, who has rights to `live.` only. */
public class Classic {
    /** The groups that may use what is named so; rights to one destination add up. */
    private static AuthorizationEntry allowed(boolean topic, String names, String groups) throws Exception {
        AuthorizationEntry entry = new AuthorizationEntry();
        if (topic) entry.setTopic(names); else entry.setQueue(names);
        entry.setRead(groups);
        entry.setWrite(groups);
        entry.setAdmin(groups);
        return entry;
    }

    public static void main(String[] arguments) throws Exception {
        BrokerService broker = new BrokerService();
        broker.setBrokerName("jmsclient-tests");
        broker.setDataDirectoryFile(new File(arguments[0]));
        broker.setUseJmx(false);
        broker.setSchedulerSupport(true);
        broker.setAdvisorySupport(false);
        broker.setUseShutdownHook(true);
        broker.getSystemUsage().getStoreUsage().setLimit(256L << 20);
        broker.getSystemUsage().getTempUsage().setLimit(64L << 20);
        broker.getSystemUsage().getJobSchedulerUsage().setLimit(64L << 20);
        broker.getSystemUsage().getMemoryUsage().setLimit(64L << 20);
        SimpleAuthenticationPlugin authentication =
            new SimpleAuthenticationPlugin(List.of(
                new AuthenticationUser(arguments[2], System.getenv("BROKER_PASSWORD"), "users"),
                new AuthenticationUser("poor", System.getenv("BROKER_PASSWORD"), "poor")));
        authentication.setAnonymousAccessAllowed(false);
        DefaultAuthorizationMap rights = new DefaultAuthorizationMap();
        rights.setAuthorizationEntries(
            List.of(allowed(false, ">", "users"), allowed(true, ">", "users"), allowed(false, "live.>", "poor")));
        broker.setPlugins(new BrokerPlugin[] {authentication, new AuthorizationPlugin(rights)});
        PolicyEntry policy = new PolicyEntry();
        policy.setQueue(">");
        policy.setExpireMessagesPeriod(500);
        PolicyMap policies = new PolicyMap();
        policies.setPolicyEntries(List.of(policy));
        broker.setDestinationPolicy(policies);
        broker.addConnector("amqp://127.0.0.1:" + arguments[1]);
        broker.start();
        broker.waitUntilStarted();
        System.out.println("CLASSIC READY");
        broker.waitUntilStopped();
    }
}
