import com.fasterxml.jackson.databind.*;
import jakarta.servlet.*;
import jakarta.servlet.http.*;
import java.io.IOException;
import java.net.URI;
import java.net.http.*;
import java.time.*;
import java.util.*;
import org.springframework.web.filter.OncePerRequestFilter;
import org.springframework.web.util.*;

/**
 * Takes visitors who come from the page of a room on another host: it redeems the code in "?firstcome_handoff=…", once, and keeps the
 * pass in a cookie of this site. Put it before the filter that verifies passes.
 */
public class HandoffFilter extends OncePerRequestFilter {
    private static final String KEY = "firstcome_handoff_key", CODE = "firstcome_handoff";
    private final HttpClient http = HttpClient.newBuilder().connectTimeout(Duration.ofSeconds(2)).build();
    private final ObjectMapper json = new ObjectMapper();
    private final String service, key, room;

    public HandoffFilter(String service, String key, String room) {
        this.service = service;
        this.key = key;
        this.room = room;
    }

    /** Returns the place of the visitor, or an empty one if the code was used or is over. */
    private JsonNode redeem(String code, String once) throws IOException, InterruptedException {
        var body = HttpRequest.BodyPublishers.ofString(json.writeValueAsString(Map.of("code", code)));
        var request = HttpRequest.newBuilder(URI.create(service + "/v1/rooms/" + room + "/handoffs")).timeout(Duration.ofSeconds(5)).POST(body)
            .header("authorization", "Bearer " + key).header("idempotency-key", once).header("content-type", "application/json");
        var told = http.send(request.build(), HttpResponse.BodyHandlers.ofString());
        if (told.statusCode() == 401 || told.statusCode() == 429 || told.statusCode() >= 500) throw new IOException("status " + told.statusCode());
        return told.statusCode() == 200 ? json.readTree(told.body()) : json.createObjectNode();
    }

    private static void keep(HttpServletRequest request, HttpServletResponse response, String name, String value, Duration lives) {
        var cookie = new Cookie(name, value);
        cookie.setPath("/");
        cookie.setHttpOnly(true);
        cookie.setSecure(request.isSecure());
        cookie.setMaxAge((int) lives.toSeconds());
        cookie.setAttribute("SameSite", "Lax");
        response.addCookie(cookie);
    }

    @Override
    protected void doFilterInternal(HttpServletRequest request, HttpServletResponse response, FilterChain chain) throws ServletException, IOException {
        String code = request.getMethod().equals("GET") ? request.getParameter(CODE) : null;
        if (code == null) {
            chain.doFilter(request, response);
            return;
        }
        // The same key again after a lost answer: only then does the code count again.
        Cookie kept = WebUtils.getCookie(request, KEY);
        String once = kept != null && kept.getValue().matches("[0-9a-f-]{36}") ? kept.getValue() : UUID.randomUUID().toString();
        response.setHeader("cache-control", "no-store");
        response.setHeader("referrer-policy", "no-referrer");
        try {
            JsonNode place = redeem(code, once);
            if (place.has("pass")) {
                var lives = Duration.between(Instant.now(), Instant.parse(place.get("slot_ends_at").asText()));
                keep(request, response, "firstcome_pass", place.get("pass").asText(), lives);
            }
            keep(request, response, KEY, "", Duration.ZERO);
            var address = UriComponentsBuilder.fromPath(request.getRequestURI().replaceFirst("^/{2,}", "/")).query(request.getQueryString());
            response.setStatus(303);
            response.setHeader("location", address.replaceQueryParam(CODE).build(true).toUriString());
        } catch (IOException | InterruptedException lost) {
            keep(request, response, KEY, once, Duration.ofMinutes(1));
            response.setStatus(503);
            response.setHeader("retry-after", "5");
            response.setHeader("refresh", "5");
            response.setContentType("application/json");
            response.getWriter().write("{\"code\":\"store_unavailable\"}");
        }
    }
}
