"""Broker configs: TLS, SASL, delegation tokens and permissions.

The notation is explained in ``odradek.core.config.definition``.
"""

from typing import Final

TABLE: Final = """
authorizer.class.name STRING ''
    The class that checks permissions; none if empty.
principal.builder.class CLASS \
org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder per-broker
    The class that names the user of a connection.
security.providers STRING -
    Java security providers; none can be loaded here.
super.users STRING '' internal
    Users that no ACL can stop, as User:name, separated by semicolons.
allow.everyone.if.no.acl.found BOOLEAN false internal
    Whether a resource without any ACL is open to all.
ssl.protocol STRING TLSv1.3 per-broker
    The TLS version to prefer; taken and ignored, ssl.enabled.protocols counts.
ssl.enabled.protocols LIST TLSv1.2,TLSv1.3 per-broker live
    The TLS versions that are accepted.
ssl.cipher.suites LIST '' per-broker live
    The cipher suites that are accepted, those of TLSv1.3 all or none; OpenSSL's own if empty.
ssl.client.auth STRING none required|requested|none per-broker live
    Whether clients must show a certificate: required, requested or none.
ssl.keystore.type STRING JKS per-broker live
    The format of the key store; only PEM is read, so it must be set.
ssl.keystore.location STRING - per-broker live
    The file with the node's certificate and key.
ssl.keystore.password PASSWORD - per-broker
    The password of a key store that is not PEM; refused, as only PEM is read.
ssl.key.password PASSWORD - per-broker live
    The password of the private key.
ssl.keystore.key PASSWORD - per-broker live
    The private key itself, as PEM.
ssl.keystore.certificate.chain PASSWORD - per-broker live
    The certificate chain itself, as PEM.
ssl.truststore.type STRING JKS per-broker live
    The format of the trust store; only PEM is read, so it must be set.
ssl.truststore.location STRING - per-broker live
    The file with the certificates that are trusted.
ssl.truststore.password PASSWORD - per-broker
    The password of a trust store that is not PEM; refused, as only PEM is read.
ssl.truststore.certificates PASSWORD - per-broker live
    The trusted certificates themselves, as PEM.
ssl.endpoint.identification.algorithm STRING https per-broker
    How the name in a certificate is checked; empty is not at all.
ssl.principal.mapping.rules STRING DEFAULT live
    How the name in a client's certificate becomes a user name.
ssl.keymanager.algorithm STRING SunX509 per-broker
    A name of Java's TLS library, taken and ignored.
ssl.trustmanager.algorithm STRING PKIX per-broker
    A name of Java's TLS library, taken and ignored.
ssl.provider STRING - per-broker
    A Java TLS provider, taken and ignored.
ssl.secure.random.implementation STRING - per-broker
    A Java random generator, taken and ignored.
ssl.engine.factory.class CLASS - per-broker
    A class that sets up TLS; classes of Java cannot be loaded here.
ssl.allow.dn.changes BOOLEAN false live
    Whether a new key store may carry another distinguished name.
ssl.allow.san.changes BOOLEAN false live
    Whether a new key store may carry other alternative names.
sasl.enabled.mechanisms LIST GSSAPI per-broker live
    The SASL mechanisms that clients may use: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512.
sasl.mechanism.inter.broker.protocol STRING GSSAPI per-broker live
    The SASL mechanism between brokers.
sasl.mechanism.controller.protocol STRING GSSAPI live
    The SASL mechanism towards controllers.
sasl.jaas.config PASSWORD - per-broker live
    Login settings in JAAS form.
sasl.client.callback.handler.class CLASS -
    A class for the client's side of SASL; not loaded here.
sasl.server.callback.handler.class CLASS -
    A class for the server's side of SASL; not loaded here.
sasl.login.callback.handler.class CLASS -
    A class that answers a login's questions; not loaded here.
sasl.login.class CLASS -
    A class that does the login; not loaded here.
sasl.server.max.receive.size INT 524288 live
    The largest SASL message a client may send.
sasl.kerberos.service.name STRING - per-broker
    The Kerberos name of this service.
sasl.kerberos.kinit.cmd STRING /usr/bin/kinit per-broker
    The path of kinit.
sasl.kerberos.min.time.before.relogin LONG 60000 per-broker
    The least time between two Kerberos logins.
sasl.kerberos.principal.to.local.rules LIST DEFAULT per-broker
    How a Kerberos principal becomes a user name.
sasl.kerberos.ticket.renew.jitter DOUBLE 0.05 per-broker
    How much chance there is in the time of renewing a ticket.
sasl.kerberos.ticket.renew.window.factor DOUBLE 0.8 per-broker
    The part of a ticket's life after which it is renewed.
sasl.login.connect.timeout.ms INT -
    How long to wait for a connection to the token provider.
sasl.login.read.timeout.ms INT -
    How long to wait for an answer of the token provider.
sasl.login.refresh.buffer.seconds SHORT 300 per-broker
    How long before its end a login is refreshed at the latest.
sasl.login.refresh.min.period.seconds SHORT 60 per-broker
    The least time between two refreshes of a login.
sasl.login.refresh.window.factor DOUBLE 0.8 per-broker
    The part of a login's life after which it is refreshed.
sasl.login.refresh.window.jitter DOUBLE 0.05 per-broker
    How much chance there is in that time.
sasl.login.retry.backoff.ms LONG 100
    The first wait after a failed login.
sasl.login.retry.backoff.max.ms LONG 10000
    The longest wait after failed logins.
sasl.oauthbearer.allow.unverified.audience BOOLEAN false new
    Whether tokens are taken although no audience is expected.
sasl.oauthbearer.allow.unverified.issuer BOOLEAN false new
    Whether tokens are taken although no issuer is expected.
sasl.oauthbearer.assertion.algorithm STRING RS256 ~ES256|RS256
    The algorithm that signs an assertion.
sasl.oauthbearer.assertion.claim.aud STRING -
    The audience put into an assertion.
sasl.oauthbearer.assertion.claim.exp.seconds INT 300 0..86400
    How long an assertion is valid.
sasl.oauthbearer.assertion.claim.iss STRING -
    The issuer put into an assertion.
sasl.oauthbearer.assertion.claim.jti.include BOOLEAN false
    Whether an assertion gets an id of its own.
sasl.oauthbearer.assertion.claim.nbf.seconds INT 60 0..3600
    How far in the past an assertion begins to be valid.
sasl.oauthbearer.assertion.claim.sub STRING -
    The subject put into an assertion.
sasl.oauthbearer.assertion.file STRING -
    A file with a ready assertion.
sasl.oauthbearer.assertion.private.key.file STRING -
    The file with the key that signs assertions.
sasl.oauthbearer.assertion.private.key.passphrase PASSWORD -
    The passphrase of that key.
sasl.oauthbearer.assertion.template.file STRING -
    A file with claims for every assertion.
sasl.oauthbearer.client.credentials.client.id STRING -
    The client id of the client-credentials grant.
sasl.oauthbearer.client.credentials.client.secret PASSWORD -
    The secret of the client-credentials grant.
sasl.oauthbearer.clock.skew.seconds INT 30
    How far the clocks of issuer and broker may differ.
sasl.oauthbearer.expected.audience LIST ''
    The audiences a token may be meant for.
sasl.oauthbearer.expected.issuer STRING -
    The issuer a token must come from.
sasl.oauthbearer.jwks.endpoint.refresh.ms LONG 3600000
    How often the issuer's keys are read again.
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms LONG 100
    The first wait after the keys could not be read.
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms LONG 10000
    The longest wait after the keys could not be read.
sasl.oauthbearer.jwks.endpoint.url STRING -
    Where the issuer's keys are.
sasl.oauthbearer.jwt.retriever.class CLASS \
org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever
    The class that fetches tokens; not loaded here.
sasl.oauthbearer.jwt.validator.class CLASS \
org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator
    The class that checks tokens; not loaded here.
sasl.oauthbearer.scope STRING -
    The scope asked of the token provider.
sasl.oauthbearer.scope.claim.name STRING scope
    The claim that holds the scope.
sasl.oauthbearer.sub.claim.name STRING sub
    The claim that holds the user.
sasl.oauthbearer.token.endpoint.url STRING -
    Where tokens come from.
delegation.token.secret.key PASSWORD -
    The secret that signs delegation tokens; the same on every node.
delegation.token.max.lifetime.ms LONG 604800000 1..
    The longest a delegation token lives, renewed or not.
delegation.token.expiry.time.ms LONG 86400000 1..
    How long a delegation token lives until it is renewed.
delegation.token.expiry.check.interval.ms LONG 3600000 1..
    How often expired delegation tokens are removed.
"""
