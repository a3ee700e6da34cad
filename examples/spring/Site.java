import jakarta.servlet.Filter;
import jakarta.servlet.http.*;
import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.time.Duration;
import org.apache.catalina.Context;
import org.apache.catalina.startup.Tomcat;
import org.apache.tomcat.util.descriptor.web.*;

/**
 * A site behind a waiting room: FIRSTCOME, FIRSTCOME_KEY and PORT come from the environment. A proxy before it sends /rooms/sale
 * and /assets/room.* to firstcome. In an application of Spring Boot the filter is a bean.
 */
public class Site {
    public static void main(String[] arguments) throws Exception {
        var environment = System.getenv();
        var grace = Duration.ofMillis(Long.parseLong(environment.getOrDefault("GRACE_MS", "30000")));
        boolean failOpen = environment.getOrDefault("FAIL_OPEN", "no").equals("yes");
        var filter = new FirstcomeFilter(environment.get("FIRSTCOME"), environment.get("FIRSTCOME_KEY"), "sale", grace, failOpen);
        var tomcat = new Tomcat();
        File directory = Files.createTempDirectory("site").toFile();
        directory.deleteOnExit();
        tomcat.setBaseDir(directory.getPath());
        tomcat.setPort(Integer.parseInt(environment.getOrDefault("PORT", "3000")));
        var context = tomcat.addContext("", directory.getPath());
        add(context, "handoff", new HandoffFilter(environment.get("FIRSTCOME"), environment.get("FIRSTCOME_KEY"), "sale"));
        add(context, "firstcome", filter);
        Tomcat.addServlet(context, "welcome", new HttpServlet() {
            @Override
            protected void service(HttpServletRequest request, HttpServletResponse response) throws IOException {
                var grant = (com.fasterxml.jackson.databind.JsonNode) request.getAttribute("firstcome");
                response.getWriter().write("welcome, number " + (grant == null ? "unknown" : grant.get("number")));
            }
        });
        context.addServletMappingDecoded("/*", "welcome");
        var connector = tomcat.getConnector();
        tomcat.start();
        System.out.println("listening on http://127.0.0.1:" + connector.getLocalPort());
        tomcat.getServer().await();
    }

    private static void add(Context context, String name, Filter filter) {
        var defined = new FilterDef();
        defined.setFilterName(name);
        defined.setFilter(filter);
        context.addFilterDef(defined);
        var mapped = new FilterMap();
        mapped.setFilterName(name);
        mapped.addURLPattern("/*");
        context.addFilterMap(mapped);
    }
}
