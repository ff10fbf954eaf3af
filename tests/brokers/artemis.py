"""ActiveMQ Artemis: an instance written here, for `artemis create` would start a virtual machine of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .certificates import STORE_PASSWORD, make_certificates
from .launching import Broker, archive, free_port, listening, need, unpacked

VERSION = "2.40.0"
_PERMISSIONS = (
    "createNonDurableQueue", "deleteNonDurableQueue", "createDurableQueue", "deleteDurableQueue", "createAddress",
    "deleteAddress", "consume", "browse", "send", "manage",
)  # fmt: skip

_BROKER = """\
<configuration xmlns="urn:activemq">
 <core xmlns="urn:activemq:core">
  <name>jmsclient-tests</name>
  <persistence-enabled>true</persistence-enabled>
  <journal-type>NIO</journal-type><journal-datasync>false</journal-datasync>
  <paging-directory>data/paging</paging-directory><bindings-directory>data/bindings</bindings-directory>
  <journal-directory>data/journal</journal-directory><large-messages-directory>data/large</large-messages-directory>
  <journal-min-files>2</journal-min-files><journal-pool-files>4</journal-pool-files><journal-file-size>1M</journal-file-size>
  <message-expiry-scan-period>500</message-expiry-scan-period>
  <acceptors>
   <acceptor name="amqp">tcp://127.0.0.1:{port}?protocols=AMQP;amqpCredits=1000;amqpLowCredits=300</acceptor>
   <acceptor name="amqps">tcp://127.0.0.1:{tls_port}?protocols=AMQP;saslMechanisms=EXTERNAL,PLAIN;wantClientAuth=true;{tls}</acceptor>
  </acceptors>
  <security-settings>
   <security-setting match="forbidden.#"><permission type="manage" roles="amq"/></security-setting>
   <security-setting match="#">{permissions}</security-setting>
  </security-settings>
  <address-settings>
   <address-setting match="#">
    <dead-letter-address>DLQ</dead-letter-address><expiry-address>ExpiryQueue</expiry-address>
    <redelivery-delay>0</redelivery-delay><max-delivery-attempts>10</max-delivery-attempts>
    <auto-create-queues>true</auto-create-queues><auto-create-addresses>true</auto-create-addresses>
    <auto-delete-queues>false</auto-delete-queues><auto-delete-addresses>false</auto-delete-addresses>
    <default-address-routing-type>ANYCAST</default-address-routing-type>
    <default-queue-routing-type>ANYCAST</default-queue-routing-type>
   </address-setting>
   <address-setting match="max3.#">
    <dead-letter-address>DLQ</dead-letter-address><max-delivery-attempts>3</max-delivery-attempts>
   </address-setting>
   <address-setting match="full.#">
    <max-size-bytes>20000</max-size-bytes><address-full-policy>BLOCK</address-full-policy>
    <max-size-bytes-reject-threshold>-1</max-size-bytes-reject-threshold>
   </address-setting>
   <address-setting match="absent.#">
    <auto-create-queues>false</auto-create-queues><auto-create-addresses>false</auto-create-addresses>
   </address-setting>
  </address-settings>
  <addresses>
   <address name="DLQ"><anycast><queue name="DLQ"/></anycast></address>
   <address name="ExpiryQueue"><anycast><queue name="ExpiryQueue"/></anycast></address>
  </addresses>
 </core>
</configuration>
"""
_BOOTSTRAP = """\
<broker xmlns="http://activemq.apache.org/schema">
 <jaas-security domain="activemq"/>
 <server configuration="file:{folder}/etc/broker.xml"/>
</broker>
"""
_MANAGEMENT = """\
<management-context xmlns="http://activemq.apache.org/schema"/>
"""
_TLS = (
    "sslEnabled=true;keyStorePath={folder}/server.p12;keyStoreType=PKCS12;keyStorePassword={password};"
    "trustStorePath={folder}/trust.p12;trustStoreType=PKCS12;trustStorePassword={password}"
)
_LOGIN = """\
activemq {
   org.apache.activemq.artemis.spi.core.security.jaas.TextFileCertificateLoginModule sufficient
     org.apache.activemq.jaas.textfiledn.user="cert-users.properties"
     org.apache.activemq.jaas.textfiledn.role="artemis-roles.properties";
   org.apache.activemq.artemis.spi.core.security.jaas.PropertiesLoginModule sufficient
     org.apache.activemq.jaas.properties.user="artemis-users.properties"
     org.apache.activemq.jaas.properties.role="artemis-roles.properties";
};
"""
_LOGGING = """\
rootLogger.level = INFO
rootLogger.appenderRef.console.ref = console
logger.audit.name = org.apache.activemq.audit
logger.audit.level = OFF
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %-5level [%logger] %msg%n
"""


class Artemis(Broker):
    name = "artemis"

    def prepare(self) -> None:
        need("java")
        self.home = unpacked(archive("org.apache.activemq", "apache-artemis", VERSION, "bin", "tar.gz"), f"artemis-{VERSION}")
        etc = self.folder / "etc"
        etc.mkdir(parents=True)
        self.tls_port = free_port()
        self.certificates = make_certificates(self.folder / "tls", self.user)
        tls = _TLS.format(folder=self.certificates, password=STORE_PASSWORD)
        permissions = "".join(f'<permission type="{one}" roles="amq"/>' for one in _PERMISSIONS)
        self._write(etc / "broker.xml", _BROKER.format(port=self.port, tls_port=self.tls_port, tls=tls, permissions=permissions))
        self._write(etc / "cert-users.properties", f"{self.user} = CN={self.user}\n")
        self._write(etc / "bootstrap.xml", _BOOTSTRAP.format(folder=self.folder))
        self._write(etc / "management.xml", _MANAGEMENT)
        self._write(etc / "login.config", _LOGIN)
        self._write(etc / "log4j2.properties", _LOGGING)
        self._write(etc / "artemis-users.properties", f"{self.user} = {_escaped(self.password)}\n")
        self._write(etc / "artemis-roles.properties", f"amq = {self.user}\n")

    @staticmethod
    def _write(path: Path, text: str) -> None:
        path.write_text(text, encoding="utf-8")

    def command(self) -> Sequence[str]:
        etc = self.folder / "etc"
        return [
            need("java"), "-Xms64M", "-Xmx512M", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
            f"-Dartemis.home={self.home}", f"-Dartemis.instance={self.folder}", f"-Dartemis.instance.etc={etc}",
            f"-Djava.security.auth.login.config={etc / 'login.config'}", f"-Dlog4j2.configurationFile={etc / 'log4j2.properties'}",
            f"-Ddata.dir={self.folder / 'data'}", f"-Djava.io.tmpdir={self.folder}",
            "-cp", f"{self.home}/lib/artemis-boot.jar", "org.apache.activemq.artemis.boot.Artemis", "run",
        ]  # fmt: skip

    def ready(self) -> bool:
        return self.logged("AMQ221007") and listening(self.port)


def _escaped(text: str) -> str:
    """A value of a Java properties file."""
    return "".join(f"\\{char}" if char in "\\:=#! " else char for char in text)
