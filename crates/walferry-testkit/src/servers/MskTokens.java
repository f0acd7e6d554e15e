import java.io.IOException;
import java.net.URI;
import java.net.URLDecoder;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.security.MessageDigest;
import java.time.Instant;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.Base64;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import javax.security.auth.callback.Callback;
import javax.security.auth.callback.UnsupportedCallbackException;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerExtensionsValidatorCallback;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerTokenCallback;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallback;

/**
 * Checks tokens as the brokers of Amazon MSK do: a URL that is signed in advance, with Signature Version 4. The folder in the system property
 * walferry.msk has the file "keys", with a line "access-key secret-key session-token" for each identity, and "age", the seconds for which a token
 * is taken. What is decided about a token is written to the file "log".
 */
public final class MskTokens implements AuthenticateCallbackHandler {
    private static final Path FOLDER = Path.of(System.getProperty("walferry.msk"));
    private static final DateTimeFormatter TIME = DateTimeFormatter.ofPattern("yyyyMMdd'T'HHmmss'Z'");

    @Override
    public void configure(Map<String, ?> configs, String mechanism, List<AppConfigurationEntry> entries) {
    }

    @Override
    public void close() {
    }

    @Override
    public void handle(Callback[] callbacks) throws IOException, UnsupportedCallbackException {
        for (Callback callback : callbacks) {
            if (callback instanceof OAuthBearerValidatorCallback validator) {
                validate(validator);
            } else if (callback instanceof OAuthBearerExtensionsValidatorCallback extensions) {
                extensions.inputExtensions().map().keySet().forEach(extensions::valid);
            } else if (!(callback instanceof OAuthBearerTokenCallback)) {
                // The broker itself logs in nowhere, so it needs no token.
                throw new UnsupportedCallbackException(callback);
            }
        }
    }

    private void validate(OAuthBearerValidatorCallback callback) throws IOException {
        try {
            OAuthBearerToken token = check(callback.tokenValue());
            log("accepted " + token.principalName() + " " + token.startTimeMs());
            callback.token(token);
        } catch (Exception refused) {
            log("refused " + refused.getMessage());
            callback.error("invalid_token", null, null);
        }
    }

    private static synchronized void log(String line) throws IOException {
        Files.writeString(FOLDER.resolve("log"), line + "\n", StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    }

    private static OAuthBearerToken check(String token) throws Exception {
        require(!token.contains("="), "it is padded");
        URI url = new URI(new String(Base64.getUrlDecoder().decode(token), StandardCharsets.UTF_8));
        require("https".equals(url.getScheme()) && "/".equals(url.getPath()), "it is no such URL");
        TreeMap<String, String> query = new TreeMap<>();
        for (String pair : url.getRawQuery().split("&")) {
            String[] parts = pair.split("=", 2);
            query.put(parts[0], URLDecoder.decode(parts[1], StandardCharsets.UTF_8));
        }
        require(query.remove("User-Agent") != null, "User-Agent");
        String signature = query.remove("X-Amz-Signature");
        require("kafka-cluster:Connect".equals(query.get("Action")), "Action");
        require("AWS4-HMAC-SHA256".equals(query.get("X-Amz-Algorithm")), "X-Amz-Algorithm");
        require("host".equals(query.get("X-Amz-SignedHeaders")), "X-Amz-SignedHeaders");
        String[] credential = query.get("X-Amz-Credential").split("/");
        String at = query.get("X-Amz-Date");
        String region = credential[2];
        require(credential.length == 5 && credential[3].equals("kafka-cluster") && at.startsWith(credential[1]), "X-Amz-Credential");
        require(url.getHost().equals("kafka." + region + ".amazonaws.com") && region.equals("eu-central-1"), "region " + region);

        String[] keys = null;
        for (String line : Files.readAllLines(FOLDER.resolve("keys"))) {
            if (line.startsWith(credential[0] + " ")) {
                keys = line.split(" ", 3);
            }
        }
        require(keys != null, "unknown key");
        require(keys[2].equals(query.getOrDefault("X-Amz-Security-Token", "")), "X-Amz-Security-Token");
        StringBuilder canonical = new StringBuilder();
        query.forEach((name, value) -> canonical.append(canonical.isEmpty() ? "" : "&").append(encode(name)).append('=').append(encode(value)));
        String request = "GET\n/\n" + canonical + "\nhost:" + url.getHost() + "\n\nhost\n" + sha256("");
        String scope = credential[1] + "/" + region + "/kafka-cluster/aws4_request";
        byte[] key = ("AWS4" + keys[1]).getBytes(StandardCharsets.UTF_8);
        for (String part : scope.split("/")) {
            key = hmac(key, part);
        }
        String expected = HexFormat.of().formatHex(hmac(key, "AWS4-HMAC-SHA256\n" + at + "\n" + scope + "\n" + sha256(request)));
        require(expected.equals(signature), "wrong signature");

        long signed = LocalDateTime.parse(at, TIME).toInstant(ZoneOffset.UTC).toEpochMilli();
        require("900".equals(query.get("X-Amz-Expires")), "X-Amz-Expires");
        long age = Long.parseLong(Files.readString(FOLDER.resolve("age")).trim());
        long ends = signed + age * 1000;
        require(Instant.now().toEpochMilli() < ends, "expired");
        String principal = credential[0];
        return new OAuthBearerToken() {
            public String value() {
                return token;
            }

            public Set<String> scope() {
                return Set.of();
            }

            public long lifetimeMs() {
                return ends;
            }

            public String principalName() {
                return principal;
            }

            public Long startTimeMs() {
                return signed;
            }
        };
    }

    private static String encode(String text) {
        return URLEncoder.encode(text, StandardCharsets.UTF_8).replace("+", "%20").replace("*", "%2A").replace("%7E", "~");
    }

    private static String sha256(String text) throws Exception {
        return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(text.getBytes(StandardCharsets.UTF_8)));
    }

    private static byte[] hmac(byte[] key, String text) throws Exception {
        Mac mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(key, "HmacSHA256"));
        return mac.doFinal(text.getBytes(StandardCharsets.UTF_8));
    }

    private static void require(boolean holds, String what) {
        if (!holds) {
            throw new IllegalArgumentException(what);
        }
    }
}
