package org.apache.kafka.test;

import java.io.IOException;
import java.math.BigInteger;
import java.net.InetAddress;
import java.security.KeyPair;
import java.security.NoSuchAlgorithmException;
import java.security.SecureRandom;
import java.security.cert.CertificateException;
import java.security.cert.X509Certificate;
import java.time.Duration;
import java.time.Instant;
import java.util.Arrays;
import java.util.Date;

import org.bouncycastle.asn1.ASN1Encodable;
import org.bouncycastle.asn1.DERPrintableString;
import org.bouncycastle.asn1.DERUTF8String;
import org.bouncycastle.asn1.x500.AttributeTypeAndValue;
import org.bouncycastle.asn1.x500.RDN;
import org.bouncycastle.asn1.x500.X500Name;
import org.bouncycastle.asn1.x500.style.BCStyle;
import org.bouncycastle.asn1.x509.Extension;
import org.bouncycastle.asn1.x509.GeneralName;
import org.bouncycastle.asn1.x509.GeneralNames;
import org.bouncycastle.cert.X509v3CertificateBuilder;
import org.bouncycastle.cert.jcajce.JcaX509CertificateConverter;
import org.bouncycastle.cert.jcajce.JcaX509ExtensionUtils;
import org.bouncycastle.cert.jcajce.JcaX509v3CertificateBuilder;
import org.bouncycastle.operator.OperatorCreationException;
import org.bouncycastle.operator.jcajce.JcaContentSignerBuilder;

/**
 * In the place of Kafka's class of this name: certificates are signed with SHA-256, and name their
 * keys.
 *
 * Those of the tests are signed with SHA-1.  OpenSSL does not take it at its usual level of security
 * and says so to clients, and Java then shows no certificate.  A test's clients have the same name on
 * certificates that are their own authorities: OpenSSL takes the first of that name for the authority
 * of all unless the keys have identifiers.
 */
public class TestSslUtils$CertificateBuilder {
    private final int days;
    private GeneralNames alternatives;

    public TestSslUtils$CertificateBuilder() {
        this(30, "SHA256withRSA");
    }

    public TestSslUtils$CertificateBuilder(int days, String algorithm) {
        this.days = days;
    }

    public TestSslUtils$CertificateBuilder sanDnsNames(String... names) throws IOException {
        alternatives = names.length == 0 ? null : new GeneralNames(Arrays.stream(names)
            .map(name -> new GeneralName(GeneralName.dNSName, name)).toArray(GeneralName[]::new));
        return this;
    }

    public TestSslUtils$CertificateBuilder sanIpAddress(InetAddress address) throws IOException {
        alternatives = new GeneralNames(new GeneralName(GeneralName.iPAddress, address.getHostAddress()));
        return this;
    }

    public X509Certificate generate(String dn, KeyPair keys) throws CertificateException {
        return generate(new X500Name(dn), keys);
    }

    public X509Certificate generate(String commonName, String org, boolean utf8, KeyPair keys)
            throws CertificateException {
        return generate(new X500Name(new RDN[] {
            new RDN(new AttributeTypeAndValue(BCStyle.CN, text(commonName, utf8))),
            new RDN(new AttributeTypeAndValue(BCStyle.O, text(org, utf8))),
        }), keys);
    }

    private static ASN1Encodable text(String value, boolean utf8) {
        return utf8 ? new DERUTF8String(value) : new DERPrintableString(value);
    }

    /** Signed by itself; a negative number of days is one that has expired. */
    public X509Certificate generate(X500Name dn, KeyPair keys) throws CertificateException {
        Instant now = Instant.now();
        Instant then = now.plus(Duration.ofDays(days));
        Date from = Date.from(days < 0 ? then : now);
        Date until = Date.from(days < 0 ? now : then);
        String kind = keys.getPrivate().getAlgorithm().equals("EC") ? "ECDSA" : keys.getPrivate().getAlgorithm();
        try {
            X509v3CertificateBuilder builder = new JcaX509v3CertificateBuilder(
                dn, new BigInteger(64, new SecureRandom()), from, until, dn, keys.getPublic());
            JcaX509ExtensionUtils identifiers = new JcaX509ExtensionUtils();
            builder.addExtension(
                Extension.subjectKeyIdentifier, false, identifiers.createSubjectKeyIdentifier(keys.getPublic()));
            builder.addExtension(
                Extension.authorityKeyIdentifier, false, identifiers.createAuthorityKeyIdentifier(keys.getPublic()));
            if (alternatives != null)
                builder.addExtension(Extension.subjectAlternativeName, false, alternatives);
            return new JcaX509CertificateConverter().getCertificate(
                builder.build(new JcaContentSignerBuilder("SHA256with" + kind).build(keys.getPrivate())));
        } catch (IOException | NoSuchAlgorithmException | OperatorCreationException e) {
            throw new CertificateException(e);
        }
    }
}
