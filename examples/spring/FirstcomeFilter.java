import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import jakarta.servlet.FilterChain;
import jakarta.servlet.ServletException;
import jakarta.servlet.http.*;
import java.io.IOException;
import java.net.*;
import java.net.http.*;
import java.nio.*;
import java.nio.charset.StandardCharsets;
import java.security.*;
import java.security.spec.X509EncodedKeySpec;
import java.time.*;
import java.util.*;
import java.util.concurrent.*;
import org.springframework.web.filter.OncePerRequestFilter;
import org.springframework.web.util.WebUtils;

/** Lets a visitor with a valid pass of a waiting room through. Verifies passes without a call to firstcome: see docs/rooms.md. */
public class FirstcomeFilter extends OncePerRequestFilter {
    private static final String HEADER = "v4.public.";
    /** What stands before the raw bytes of a public key of Ed25519. */
    private static final byte[] X509 = HexFormat.of().parseHex("302a300506032b6570032100");
    private static final int KNOWN_MAX = 10_000;
    /** A list that was asked for this long after an admission has it. */
    private static final Duration SPREAD = Duration.ofSeconds(2);

    private record Keys(String text, Map<String, PublicKey> signers, byte[] domain, Map<String, JsonNode> known) {}
    private record Passes(String tag, Set<String> live, Instant asOf, long freshAt) {}

    private final ObjectMapper json = new ObjectMapper();
    private final HttpClient http = HttpClient.newBuilder().connectTimeout(Duration.ofSeconds(2)).build();
    private final String service, key, room;
    private final long graceNs;
    private final boolean failOpen;
    private volatile Keys keys = new Keys("", Map.of(), new byte[0], new ConcurrentHashMap<>());
    private volatile Passes passes;

    /** @param failOpen whether visitors come in without a pass once firstcome was away for the grace; otherwise none does. */
    public FirstcomeFilter(String service, String key, String room, Duration grace, boolean failOpen) {
        this.service = service;
        this.key = key;
        this.room = room;
        this.graceNs = grace.toNanos();
        this.failOpen = failOpen;
        this.passes = new Passes("", Set.of(), Instant.EPOCH, System.nanoTime() - graceNs);
        Thread thread = new Thread(this::refreshForever, "firstcome");
        thread.setDaemon(true);
        thread.start();
    }

    private HttpResponse<String> ask(String path, String tag) throws IOException, InterruptedException {
        var request = HttpRequest.newBuilder(URI.create(service + path)).timeout(Duration.ofSeconds(2)).header("authorization", "Bearer " + key);
        if (!tag.isEmpty()) request.header("if-none-match", tag);
        var told = http.send(request.build(), HttpResponse.BodyHandlers.ofString());
        if (told.statusCode() != 200 && told.statusCode() != 304) throw new IOException(path + ": " + told.statusCode());
        return told;
    }

    private void refresh() throws IOException, InterruptedException, GeneralSecurityException {
        long sentAt = System.nanoTime();
        String text = ask("/v1/pass-keys", "").body();
        if (!text.equals(keys.text)) { // Passes of a key that is gone are void.
            JsonNode told = json.readTree(text);
            Map<String, PublicKey> signers = new HashMap<>();
            for (JsonNode item : told.get("items")) {
                byte[] raw = decoded(item.get("public_key").asText().substring("k4.public.".length()));
                signers.put(item.get("kid").asText(), KeyFactory.getInstance("Ed25519").generatePublic(new X509EncodedKeySpec(joined(X509, raw))));
            }
            keys = new Keys(text, signers, told.get("implicit_assertion").asText().getBytes(StandardCharsets.UTF_8), new ConcurrentHashMap<>());
        }
        var told = ask("/v1/rooms/" + room + "/passes", passes.tag);
        Set<String> live = passes.live;
        if (told.statusCode() == 200) {
            live = new HashSet<>();
            for (JsonNode item : json.readTree(told.body()).get("items")) live.add(item.get(0) + "," + item.get(1));
        }
        var header = told.headers();
        passes = new Passes(header.firstValue("etag").orElseThrow(), live, Instant.parse(header.firstValue("x-firstcome-as-of").orElseThrow()), sentAt);
    }

    private void refreshForever() {
        try {
            while (true) {
                try {
                    refresh();
                } catch (IOException | GeneralSecurityException | RuntimeException error) {
                    // The age of the list says how long it has failed.
                }
                Thread.sleep(1_000);
            }
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
        }
    }

    private static byte[] decoded(String text) {
        return Base64.getUrlDecoder().decode(text);
    }

    private static byte[] joined(byte[]... parts) {
        var all = ByteBuffer.allocate(Arrays.stream(parts).mapToInt(part -> part.length).sum());
        for (byte[] part : parts) all.put(part);
        return all.array();
    }

    /** What PASETO signs, as its specification says under "Pre-Authentication Encoding". */
    private static byte[] encoded(byte[]... parts) {
        var all = ByteBuffer.allocate(8 + Arrays.stream(parts).mapToInt(part -> 8 + part.length).sum()).order(ByteOrder.LITTLE_ENDIAN);
        all.putLong(parts.length);
        for (byte[] part : parts) all.putLong(part.length).put(part);
        return all.array();
    }

    private JsonNode read(String pass, Keys keys) throws GeneralSecurityException, IOException {
        String[] parts = pass.substring(HEADER.length()).split("\\.");
        byte[] payload = decoded(parts[0]), footer = decoded(parts[1]);
        byte[] message = Arrays.copyOf(payload, payload.length - 64);
        Signature signature = Signature.getInstance("Ed25519");
        signature.initVerify(keys.signers.get(json.readTree(footer).get("kid").asText()));
        signature.update(encoded(HEADER.getBytes(StandardCharsets.UTF_8), message, footer, keys.domain));
        if (!signature.verify(payload, message.length, 64)) throw new SignatureException("forged");
        if (keys.known.size() >= KNOWN_MAX) keys.known.clear();
        JsonNode claims = json.readTree(message);
        keys.known.put(pass, claims);
        return claims;
    }

    private JsonNode grant(HttpServletRequest request) {
        Cookie cookie = WebUtils.getCookie(request, "firstcome_pass");
        String pass = Optional.ofNullable(request.getHeader("X-Firstcome-Pass")).orElse(cookie == null ? "" : cookie.getValue());
        if (!pass.startsWith(HEADER) || pass.length() > 1_024) return null;
        try {
            Keys keys = this.keys;
            Passes passes = this.passes;
            JsonNode claims = keys.known.get(pass);
            if (claims == null) claims = read(pass, keys);
            Instant admitted = Instant.parse(claims.get("iat").asText()), end = Instant.parse(claims.get("exp").asText());
            boolean isLive = passes.live.contains(claims.get("number") + "," + claims.get("slot")) || passes.asOf.isBefore(admitted.plus(SPREAD));
            return isLive && claims.get("room").asText().equals(room) && Instant.now().isBefore(end) ? claims : null;
        } catch (GeneralSecurityException | IOException | RuntimeException error) {
            return null;
        }
    }

    @Override
    protected void doFilterInternal(HttpServletRequest request, HttpServletResponse response, FilterChain chain) throws ServletException, IOException {
        boolean isAway = System.nanoTime() - passes.freshAt > graceNs;
        JsonNode grant = isAway && !failOpen ? null : grant(request);
        if (grant != null || (isAway && failOpen)) {
            request.setAttribute("firstcome", grant);
            chain.doFilter(request, response);
            return;
        }
        response.setHeader("cache-control", "no-store");
        String accept = Optional.ofNullable(request.getHeader("accept")).orElse("");
        if (isAway) {
            response.setHeader("retry-after", "5");
            refuse(response, 503, "store_unavailable");
        } else if (accept.contains("json") && !accept.contains("html")) {
            refuse(response, 401, "no_pass");
        } else {
            String query = request.getQueryString() == null ? "" : "?" + request.getQueryString();
            response.setStatus(303);
            response.setHeader("location", "/rooms/" + room + "?back=" + URLEncoder.encode(request.getRequestURI() + query, StandardCharsets.UTF_8));
        }
    }

    private static void refuse(HttpServletResponse response, int status, String code) throws IOException {
        response.setStatus(status);
        response.setContentType("application/json");
        response.getWriter().write("{\"code\":\"" + code + "\"}");
    }
}
