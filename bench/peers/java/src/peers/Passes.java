package peers;

import java.io.BufferedOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** What a task writes down about each acquisition, six words each. */
final class Passes {
    private final List<long[]> words = new ArrayList<>();

    void add(long askedNs, long endedNs, long granted, long sinceNs) {
        words.add(new long[] {askedNs, endedNs, granted, sinceNs});
    }

    int count() {
        return words.size();
    }

    static void write(List<Passes> all, Path path) throws IOException {
        try (OutputStream out = new BufferedOutputStream(Files.newOutputStream(path))) {
            ByteBuffer bytes = ByteBuffer.allocate(48).order(ByteOrder.LITTLE_ENDIAN);
            for (Passes passes : all) {
                for (long[] pass : passes.words) {
                    bytes.clear();
                    for (long word : pass) {
                        bytes.putLong(word);
                    }
                    // Neither place nor fence.
                    bytes.putLong(0).putLong(0);
                    out.write(bytes.array());
                }
            }
        }
    }
}
