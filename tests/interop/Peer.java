// A driver of Apache BookKeeper's own Java client.  SPDX-License-Identifier: Apache-2.0
//
//     java -cp ... Peer COMMAND key=value ...     does one thing, prints one JSON line, exits
//     java -cp ... Peer serve key=value ...       reads such lines from standard input until it ends, answers each with one JSON line
//
// The options of `serve` are the defaults of its commands.  Ledgers that a command leaves open stay open until the process ends, so that
// a test can append to one, have it fenced by somebody else, and append again.  A payload's digest is SHA-256 over payload and newline, each.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.EnumSet;
import java.util.Enumeration;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.BookKeeperAdmin;
import org.apache.bookkeeper.client.LedgerEntry;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.client.api.DigestType;
import org.apache.bookkeeper.client.api.LedgerMetadata;
import org.apache.bookkeeper.client.api.WriteFlag;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.net.BookieId;

public class Peer {
    static final Map<String, BookKeeper> CLIENTS = new HashMap<>();
    static final Map<Long, LedgerHandle> OPEN = new HashMap<>();
    static final Map<Long, CompletableFuture<Map<String, Object>>> RUNNING = new HashMap<>();

    /** One command with its options. */
    record Task(String command, Map<String, String> options) {
        String text(String key, String fallback) { return options.getOrDefault(key, fallback); }
        int number(String key, int fallback) { return Integer.parseInt(text(key, "" + fallback)); }
        boolean is(String key, boolean fallback) { return text(key, fallback ? "yes" : "no").equals("yes"); }
        long ledger() { return Long.parseLong(text("ledger", "0")); }
        byte[] password() { return text("password", "").getBytes(StandardCharsets.UTF_8); }
        String digest() { return text("digest", "CRC32C"); }

        LedgerHandle held() {
            LedgerHandle found = OPEN.get(ledger());
            if (found == null) throw new IllegalArgumentException("ledger " + ledger() + " is not open here");
            return found;
        }

        /** The client of this metadata store and protocol; made at the first use. */
        BookKeeper client() throws Exception {
            BookKeeper found = CLIENTS.get(clientKey());
            if (found == null) CLIENTS.put(clientKey(), found = connect());
            return found;
        }

        String clientKey() {
            return text("metadata", "") + " " + text("protocol", "v2") + " " + text("explicit_lac_ms", "0") + text("delay_ensemble_change", "no") + text("other", "") + configured();
        }

        /** What it is configured with besides: options `conf.KEY`. */
        Map<String, String> configured() {
            Map<String, String> found = new TreeMap<>();
            options.forEach((key, value) -> { if (key.startsWith("conf.")) found.put(key.substring(5), value); });
            return found;
        }

        BookKeeper connect() throws Exception {
            ClientConfiguration conf = new ClientConfiguration();
            conf.setMetadataServiceUri(text("metadata", "zk+hierarchical://127.0.0.1:2181/ledgers"));
            conf.setUseV2WireProtocol(text("protocol", "v2").equals("v2"));
            conf.setNumChannelsPerBookie(number("channels", 1));
            conf.setThrottleValue(0);
            conf.setAddEntryTimeout(number("timeout", 30));
            conf.setReadEntryTimeout(number("timeout", 30));
            conf.setNettyMaxFrameSizeBytes(5 * 1024 * 1024);
            conf.setExplictLacInterval(number("explicit_lac_ms", 0));
            conf.setDelayEnsembleChange(is("delay_ensemble_change", false));
            configured().forEach(conf::setProperty);
            return new BookKeeper(conf);
        }

        LedgerHandle create() throws Exception {
            var op = client().newCreateLedgerOp().withEnsembleSize(number("ensemble", 3)).withWriteQuorumSize(number("write", 3)).withAckQuorumSize(number("ack", 2))
                .withDigestType(DigestType.valueOf(digest())).withPassword(password());
            if (is("deferred_sync", false)) op = op.withWriteFlags(EnumSet.of(WriteFlag.DEFERRED_SYNC));
            if (!text("label", "").isEmpty()) op = op.withCustomMetadata(Map.of("label", text("label", "").getBytes(StandardCharsets.UTF_8)));
            return (LedgerHandle) op.execute().get();
        }

        LedgerHandle open() throws Exception {
            BookKeeper.DigestType kind = BookKeeper.DigestType.valueOf(digest());
            return is("recover", true) ? client().openLedger(ledger(), kind, password()) : client().openLedgerNoRecovery(ledger(), kind, password());
        }
    }

    // ---- answers -------------------------------------------------------------------------------------------------

    static Map<String, Object> answer(Object... pairs) {
        Map<String, Object> made = new LinkedHashMap<>();
        for (int i = 0; i < pairs.length; i += 2) made.put((String) pairs[i], pairs[i + 1]);
        return made;
    }

    static String json(Object value) {
        if (value instanceof Map<?, ?> map) {
            StringBuilder out = new StringBuilder("{");
            map.forEach((key, inner) -> out.append(out.length() > 1 ? "," : "").append(json(key.toString())).append(":").append(json(inner)));
            return out.append("}").toString();
        }
        if (value instanceof List<?> list) return "[" + String.join(",", list.stream().map(Peer::json).toList()) + "]";
        if (value instanceof Double number) return String.format("%.3f", number);
        if (value == null || value instanceof Number || value instanceof Boolean) return "" + value;
        return "\"" + value.toString().replace("\\", "\\\\").replace("\"", "'").replaceAll("\\p{Cntrl}", " ") + "\"";
    }

    static Map<String, Object> failure(Throwable error) {
        while ((error instanceof ExecutionException || error instanceof java.util.concurrent.CompletionException) && error.getCause() != null) error = error.getCause();
        int code = error instanceof BKException found ? found.getCode() : 0;
        return answer("error", error.getClass().getSimpleName(), "code", code, "message", "" + error.getMessage());
    }

    static byte[] pattern(int size) {
        byte[] data = new byte[size];
        for (int i = 0; i < size; i++) data[i] = (byte) (7 * i + 3);
        return data;
    }

    static void count(MessageDigest sha, byte[] payload) {
        sha.update(payload);
        sha.update((byte) '\n');
    }

    static String hex(MessageDigest sha) { return HexFormat.of().formatHex(sha.digest()); }

    static double cpuSeconds() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime() / 1e9;
    }

    /** Adds the percentiles, in milliseconds, of latencies in nanoseconds. */
    static Map<String, Object> percentiles(Map<String, Object> found, long[] nanos) { return percentiles(found, nanos, ""); }

    static Map<String, Object> percentiles(Map<String, Object> found, long[] nanos, String prefix) {
        long[] sorted = nanos.clone();
        Arrays.sort(sorted);
        for (var each : Map.of("p50_ms", 0.5, "p99_ms", 0.99, "p999_ms", 0.999, "max_ms", 1.0).entrySet())
            found.put(prefix + each.getKey(), sorted[(int) Math.min(sorted.length - 1, sorted.length * each.getValue())] / 1e6);
        return found;
    }

    // ---- appends --------------------------------------------------------------------------------------------------

    /** Open loop: arrivals come in ticks of one millisecond; latency counts from the tick, late or not. */
    static long awaitTick(long begin, long index, int rate) throws Exception {
        long due = begin + index * 1000 / rate * 1_000_000, wait = due - System.nanoTime();
        if (wait > 0) Thread.sleep(wait / 1_000_000, (int) (wait % 1_000_000));
        return due;
    }

    /** Appends all; at most `window` are outstanding.  The answer counts what was acknowledged and names the first error. */
    static Map<String, Object> append(LedgerHandle ledger, List<byte[]> payloads, int window, int rate, long[] nanos) throws Exception {
        Semaphore free = new Semaphore(window);
        AtomicInteger failed = new AtomicInteger(), code = new AtomicInteger();
        AtomicLong last = new AtomicLong(-1);
        long begin = System.nanoTime();
        int index = -1;
        for (byte[] payload : payloads) {
            final int mine = ++index;
            final long due = rate > 0 ? awaitTick(begin, mine, rate) : 0;
            free.acquire();
            final long sent = rate > 0 ? due : System.nanoTime();
            ledger.asyncAddEntry(payload, (rc, handle, entry, context) -> {
                if (rc == BKException.Code.OK) last.accumulateAndGet(entry, Math::max);
                else if (failed.incrementAndGet() == 1) code.set(rc);
                if (nanos != null) nanos[mine] = System.nanoTime() - sent;
                free.release();
            }, null);
        }
        free.acquire(window);
        return answer("ledger", ledger.getId(), "entries", payloads.size(), "failed", failed.get(), "code", code.get(), "last", last.get());
    }

    /** write: size, entries, window, rate (0: closed loop), warmup, keep=yes|no; one measured ledger. */
    static Map<String, Object> write(Task task) throws Exception {
        int size = task.number("size", 1024), entries = task.number("entries", 200000), window = task.number("window", 1000);
        int warmup = task.number("warmup", 0), rate = task.number("rate", 0);
        byte[] data = pattern(size);
        if (warmup > 0) {
            LedgerHandle first = task.create();
            append(first, Collections.nCopies(warmup, data), window, 0, null);
            first.close();
            task.client().deleteLedger(first.getId());
        }
        LedgerHandle ledger = task.create();
        long[] nanos = new long[entries];
        double cpu = cpuSeconds();
        long start = System.nanoTime();
        Map<String, Object> found = append(ledger, Collections.nCopies(entries, data), window, rate, nanos);
        double seconds = (System.nanoTime() - start) / 1e9;
        cpu = cpuSeconds() - cpu;
        ledger.close();
        if (!task.is("keep", true)) task.client().deleteLedger(ledger.getId());
        if ((int) found.get("failed") > 0) throw new IllegalStateException(found.get("failed") + " appends failed: " + BKException.getMessage((int) found.get("code")));
        found.putAll(answer("size", size, "window", window, "seconds", seconds, "entries_per_second", entries / seconds, "client_cpu_us_per_entry", cpu / entries * 1e6));
        return percentiles(found, nanos);
    }

    /** The payloads a command names: `file` (its lines, from `from` until before `to`), else `count` patterns of `size` bytes. */
    static List<byte[]> payloads(Task task) throws Exception {
        if (task.text("file", "").isEmpty()) return Collections.nCopies(task.number("count", 1), pattern(task.number("size", 100)));
        byte[] data = Files.readAllBytes(Path.of(task.text("file", "")));
        List<byte[]> lines = new ArrayList<>();
        for (int start = 0, at = 0; at <= data.length; at++) {
            if (at == data.length ? at > start : data[at] == '\n') { lines.add(Arrays.copyOfRange(data, start, at)); start = at + 1; }
        }
        return lines.subList(Math.min(lines.size(), task.number("from", 0)), Math.min(lines.size(), task.number("to", Integer.MAX_VALUE)));
    }

    static Map<String, Object> appendTo(LedgerHandle ledger, Task task) throws Exception {
        List<byte[]> all = payloads(task);
        MessageDigest sha = MessageDigest.getInstance("SHA-256");
        for (byte[] payload : all) count(sha, payload);
        Map<String, Object> found = append(ledger, all, task.number("window", 1000), task.number("rate", 0), null);
        found.put("sha256", hex(sha));
        return found;
    }

    /** lines: appends each line of `file` to a new ledger and closes it. */
    static Map<String, Object> lines(Task task) throws Exception {
        LedgerHandle ledger = task.create();
        Map<String, Object> found = appendTo(ledger, task);
        ledger.close();
        return found;
    }

    /** create: a ledger that stays open here. */
    static Map<String, Object> create(Task task) throws Exception {
        LedgerHandle ledger = task.create();
        OPEN.put(ledger.getId(), ledger);
        return state(ledger);
    }

    /** append: to a ledger held open; background=yes answers at once, `await` fetches the outcome. */
    static Map<String, Object> append(Task task) throws Exception {
        LedgerHandle ledger = task.held();
        if (!task.is("background", false)) return appendTo(ledger, task);
        RUNNING.put(ledger.getId(), CompletableFuture.supplyAsync(() -> {
            try { return appendTo(ledger, task); } catch (Exception error) { return failure(error); }
        }));
        return answer("ledger", ledger.getId());
    }

    static Map<String, Object> close(Task task) throws Exception {
        LedgerHandle ledger = task.held();
        ledger.close();
        OPEN.remove(ledger.getId());
        return state(ledger);
    }

    // ---- reads ----------------------------------------------------------------------------------------------------

    static Map<String, Object> state(LedgerHandle ledger) {
        return answer("ledger", ledger.getId(), "last", ledger.getLastAddConfirmed(), "length", ledger.getLength(), "closed", ledger.isClosed());
    }

    /** read: all of a ledger; recover=yes|no, how=read|batch|unconfirmed, batch (entries a request), until (an entry id, for unconfirmed). */
    static Map<String, Object> read(Task task) throws Exception {
        int batch = task.number("batch", 1000);
        String how = task.text("how", "read");
        try (LedgerHandle ledger = task.open()) {
            long last = how.equals("unconfirmed") ? task.number("until", 0) : ledger.getLastAddConfirmed();
            MessageDigest sha = MessageDigest.getInstance("SHA-256");
            long bytes = 0, entries = 0;
            double cpu = cpuSeconds();
            long start = System.nanoTime();
            for (long first = 0; first <= last; ) {
                Enumeration<LedgerEntry> found = switch (how) {
                    case "batch" -> ledger.batchReadEntries(first, batch, 4 * 1024 * 1024);
                    case "unconfirmed" -> ledger.readUnconfirmedEntries(first, Math.min(last, first + batch - 1));
                    default -> ledger.readEntries(first, Math.min(last, first + batch - 1));
                };
                while (found.hasMoreElements()) {
                    LedgerEntry entry = found.nextElement();
                    if (entry.getEntryId() != first) throw new IllegalStateException("entry " + entry.getEntryId() + " where " + first + " was due");
                    byte[] data = entry.getEntry();
                    count(sha, data);
                    bytes += data.length;
                    entries++;
                    first++;
                }
            }
            double seconds = (System.nanoTime() - start) / 1e9;
            Map<String, Object> found = state(ledger);
            found.putAll(answer("entries", entries, "bytes", bytes, "seconds", seconds, "entries_per_second", entries / seconds,
                "client_cpu_us_per_entry", (cpuSeconds() - cpu) / Math.max(1, entries) * 1e6, "sha256", hex(sha)));
            return found;
        }
    }

    /** random: entries of a ledger read one by one at random. */
    static Map<String, Object> random(Task task) throws Exception {
        try (LedgerHandle ledger = task.open()) {
            java.util.Random dice = new java.util.Random(1);
            long[] nanos = new long[task.number("entries", 5000)];
            for (int i = 0; i < nanos.length; i++) {
                long at = (long) (dice.nextDouble() * (ledger.getLastAddConfirmed() + 1)), start = System.nanoTime();
                ledger.readEntries(at, at).nextElement().getEntry();
                nanos[i] = System.nanoTime() - start;
            }
            return percentiles(answer("entries", nanos.length), nanos);
        }
    }

    /** recover: fences, recovers and closes; says how long that took. */
    static Map<String, Object> recover(Task task) throws Exception {
        long start = System.nanoTime();
        try (LedgerHandle ledger = task.open()) {
            Map<String, Object> found = state(ledger);
            found.put("millis", (System.nanoTime() - start) / 1e6);
            return found;
        }
    }

    /** recoveries: `inflight` appends never awaited, then recovery by a second client; `rounds` times. */
    static Map<String, Object> recoveries(Task task) throws Exception {
        long[] nanos = new long[task.number("rounds", 20)];
        int inflight = task.number("inflight", 1000);
        byte[] data = pattern(task.number("size", 1024));
        try (BookKeeper other = task.connect()) {
            for (int round = 0; round < nanos.length; round++) {
                LedgerHandle ledger = task.create();
                Semaphore done = new Semaphore(0);
                for (int i = 0; i < inflight; i++) ledger.asyncAddEntry(data, (rc, handle, entry, context) -> done.release(), null);
                long start = System.nanoTime();
                LedgerHandle reader = other.openLedger(ledger.getId(), BookKeeper.DigestType.valueOf(task.digest()), task.password());
                nanos[round] = System.nanoTime() - start;
                reader.close();
                done.acquire(inflight);
                task.client().deleteLedger(ledger.getId());
            }
        }
        return percentiles(answer("rounds", nanos.length, "inflight", inflight), nanos);
    }

    /** lac: what a reader that recovers nothing learns of the end of a ledger that is being written. */
    static Map<String, Object> lac(Task task) throws Exception {
        task.options().put("recover", "no");
        try (LedgerHandle ledger = task.open()) {
            long opened = ledger.getLastAddConfirmed(), read = ledger.readLastConfirmed();
            long explicit = task.text("protocol", "v2").equals("v3") ? ledger.readExplicitLastConfirmed() : -1;
            return answer("opened", opened, "read", read, "explicit", explicit);
        }
    }

    /** tail: a writer at `rate`, and a second client that follows by long poll (always V3: V2 has none); latency from the tick to being read, and to the acknowledgement. */
    static Map<String, Object> tail(Task task) throws Exception {
        task.options().put("protocol", "v3");
        int entries = task.number("entries", 20000), rate = task.number("rate", 5000), size = Math.max(8, task.number("size", 1024)), before = 10;
        LedgerHandle ledger = task.create();
        long[] nanos = new long[entries], acknowledged = new long[entries];
        CompletableFuture<Void> followed = new CompletableFuture<>();
        try (BookKeeper other = task.connect()) {
            LedgerHandle reader = other.openLedgerNoRecovery(ledger.getId(), BookKeeper.DigestType.valueOf(task.digest()), task.password());
            // A Java bookie without an entry answers "no such ledger" to a long poll, and one of three may be behind.
            for (int i = 0; i < before; i++) ledger.addEntry(new byte[size]);
            Thread follower = new Thread(() -> {
                try {
                    for (long next = before; next < before + entries; ) {
                        try (var found = reader.readLastAddConfirmedAndEntry(next, 1000, true)) {
                            long last = Math.min(found.getLastAddConfirmed(), next + 999);
                            if (found.getEntry() != null && found.getEntry().getEntryId() == next)
                                nanos[(int) next++ - before] = System.nanoTime() - ByteBuffer.wrap(found.getEntry().getEntryBytes()).getLong();
                            if (last < next) continue;
                            for (Enumeration<LedgerEntry> more = reader.readEntries(next, last); more.hasMoreElements(); next++) {
                                long due = ByteBuffer.wrap(more.nextElement().getEntry()).getLong();
                                if (next < before + entries) nanos[(int) next - before] = System.nanoTime() - due;
                            }
                        }
                    }
                    followed.complete(null);
                } catch (Exception error) { followed.completeExceptionally(error); }
            });
            follower.setDaemon(true);
            follower.start();
            long begin = System.nanoTime();
            for (int i = 0; i < entries; i++) {
                long due = awaitTick(begin, i, rate);
                byte[] data = new byte[size];
                ByteBuffer.wrap(data).putLong(due);
                final int mine = i;
                ledger.asyncAddEntry(data, (rc, handle, entry, context) -> acknowledged[mine] = System.nanoTime() - due, null);
            }
            Thread.sleep(100);
            ledger.addEntry(new byte[8]);  // the last entries become visible with the next LAC: give one
            followed.get(30, TimeUnit.SECONDS);
        }
        ledger.close();
        Map<String, Object> found = answer("ledger", ledger.getId(), "entries", entries, "rate", rate);
        percentiles(found, Arrays.copyOfRange(acknowledged, entries / 4, entries), "append_");
        return percentiles(found, Arrays.copyOfRange(nanos, entries / 4, entries - 1));
    }

    /** One of the ledgers of `many`: its next operation begins when the last one ended. */
    record Turns(LedgerHandle writer, LedgerHandle reader, byte[] data, int prefilled, AtomicInteger next, long[] nanos, AtomicInteger failed, Semaphore ended) {
        void go() {
            final int mine = next.getAndIncrement();
            if (mine >= nanos.length) { ended.release(); return; }
            final long at = java.util.concurrent.ThreadLocalRandom.current().nextInt(prefilled), sent = System.nanoTime();
            if (mine % 2 == 0) writer.asyncAddEntry(data, (rc, handle, entry, context) -> done(mine, sent, rc), null);
            else reader.asyncReadEntries(at, at, (rc, handle, found, context) -> {
                if (rc == BKException.Code.OK) found.nextElement().getEntry();
                done(mine, sent, rc);
            }, null);
        }

        void done(int mine, long sent, int rc) {
            nanos[mine] = System.nanoTime() - sent;
            if (rc != BKException.Code.OK) failed.incrementAndGet();
            go();
        }
    }

    /** many: `entries` appends and reads by turns on `count` ledgers; each has one operation under way. */
    static Map<String, Object> many(Task task) throws Exception {
        int count = task.number("count", 1000), prefilled = 10;
        long[] nanos = new long[task.number("entries", 100000)];
        byte[] data = pattern(task.number("size", 1024));
        AtomicInteger next = new AtomicInteger(), failed = new AtomicInteger();
        Semaphore ended = new Semaphore(0);
        List<Turns> all = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            LedgerHandle writer = task.create();
            append(writer, Collections.nCopies(prefilled, data), prefilled, 0, null);
            writer.addEntry(data);  // with it the others are confirmed to readers
            LedgerHandle reader = task.client().openLedgerNoRecovery(writer.getId(), BookKeeper.DigestType.valueOf(task.digest()), task.password());
            all.add(new Turns(writer, reader, data, prefilled, next, nanos, failed, ended));
        }
        double cpu = cpuSeconds();
        long start = System.nanoTime();
        for (Turns each : all) each.go();
        ended.acquire(count);
        double seconds = (System.nanoTime() - start) / 1e9;
        cpu = cpuSeconds() - cpu;
        for (Turns each : all) {
            each.reader().close();
            each.writer().close();
            task.client().deleteLedger(each.writer().getId());
        }
        if (failed.get() > 0) throw new IllegalStateException(failed.get() + " operations failed");
        long[] appends = java.util.stream.IntStream.range(0, nanos.length).filter(i -> i % 2 == 0).mapToLong(i -> nanos[i]).toArray();
        long[] reads = java.util.stream.IntStream.range(0, nanos.length).filter(i -> i % 2 == 1).mapToLong(i -> nanos[i]).toArray();
        Map<String, Object> found = answer("entries", nanos.length, "entries_per_second", nanos.length / seconds, "client_cpu_us_per_entry", cpu / nanos.length * 1e6);
        return percentiles(percentiles(found, appends), reads, "read_");
    }

    // ---- ledgers and bookies ------------------------------------------------------------------------------------------

    /** ledgers: `count` ledgers of `each` entries (1), made one by one and deleted unless keep=yes. */
    static Map<String, Object> ledgers(Task task) throws Exception {
        int count = task.number("count", 2000);
        List<Long> ids = new ArrayList<>();
        long start = System.nanoTime();
        for (int i = 0; i < count; i++) {
            LedgerHandle ledger = task.create();
            for (int entry = 0; entry < task.number("each", 1); entry++) ledger.addEntry(pattern(task.number("size", 100)));
            ledger.close();
            ids.add(ledger.getId());
        }
        double made = (System.nanoTime() - start) / 1e9;
        if (task.is("keep", false)) return answer("ledgers", ids, "made_per_second", count / made);
        start = System.nanoTime();
        for (long id : ids) task.client().deleteLedger(id);
        return answer("made_per_second", count / made, "deleted_per_second", count / ((System.nanoTime() - start) / 1e9));
    }

    static Map<String, Object> delete(Task task) throws Exception {
        task.client().deleteLedger(task.ledger());
        return answer("ledger", task.ledger());
    }

    static Map<String, Object> list(Task task) throws Exception {
        List<Long> ids = new ArrayList<>();
        try (BookKeeperAdmin admin = new BookKeeperAdmin(task.client(), new ClientConfiguration())) {
            for (long id : admin.listLedgers()) ids.add(id);
        }
        Collections.sort(ids);
        return answer("ledgers", ids);
    }

    /** metadata: what the store holds about a ledger, as the Java client reads it. */
    static Map<String, Object> metadata(Task task) throws Exception {
        LedgerMetadata found = task.client().getLedgerManager().readLedgerMetadata(task.ledger()).get().getValue();
        Map<String, Object> fragments = new LinkedHashMap<>(), custom = new TreeMap<>();
        found.getAllEnsembles().forEach((first, bookies) -> fragments.put("" + first, bookies.stream().map(BookieId::toString).toList()));
        found.getCustomMetadata().forEach((key, value) -> custom.put(key, new String(value, StandardCharsets.UTF_8)));
        return answer("ledger", task.ledger(), "state", found.getState().name(), "ensemble", found.getEnsembleSize(), "write", found.getWriteQuorumSize(), "ack", found.getAckQuorumSize(),
            "last", found.isClosed() ? found.getLastEntryId() : -1L, "length", found.getLength(), "digest", found.getDigestType().name(), "fragments", fragments, "custom", custom,
            "version", found.getMetadataFormatVersion());
    }

    /** bookies: those that registered; waits until `count` of them are writable and each client of this store can place a ledger on so many, at most `seconds`. */
    static Map<String, Object> bookies(Task task) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(task.number("seconds", 30));
        try (BookKeeperAdmin admin = new BookKeeperAdmin(task.client(), new ClientConfiguration())) {
            while (true) {
                List<String> writable = admin.getAvailableBookies().stream().map(BookieId::toString).sorted().toList();
                if (writable.size() == task.number("count", writable.size()) && placeable(task, writable.size()) || System.nanoTime() > end)
                    return answer("writable", writable, "read_only", admin.getReadOnlyBookies().stream().map(BookieId::toString).sorted().toList());
                Thread.sleep(50);
            }
        }
    }

    /** Whether every client of this store knows of `count` bookies: the list above is read from the store, and each client hears of a change by a watch of its own. */
    static boolean placeable(Task task, int count) throws Exception {
        for (Map.Entry<String, BookKeeper> known : CLIENTS.entrySet()) {
            if (count == 0 || !known.getKey().startsWith(task.text("metadata", "") + " ")) continue;
            try {
                known.getValue().getClientCtx().getBookieWatcher().newEnsemble(count, count, count, Map.of());
            } catch (BKException.BKNotEnoughBookiesException behind) {
                return false;
            }
        }
        return true;
    }

    /** info: what each bookie answers to a request for its disk space. */
    static Map<String, Object> info(Task task) throws Exception {
        Map<String, Object> found = new TreeMap<>();
        task.client().getBookieInfo().forEach((bookie, info) -> found.put(bookie.toString(), answer("total", info.getTotalDiskSpace(), "free", info.getFreeDiskSpace())));
        return answer("bookies", found);
    }

    /** repair: Java's own copy of what a lost bookie (`bookie` = its id) held of a ledger, or of all if none is named, to the others. */
    static Map<String, Object> repair(Task task) throws Exception {
        Set<BookieId> lost = Set.of(BookieId.parse(task.text("bookie", "")));
        long start = System.nanoTime();
        try (BookKeeperAdmin admin = new BookKeeperAdmin(task.client(), new ClientConfiguration())) {
            if (task.options().containsKey("ledger")) admin.recoverBookieData(task.ledger(), lost, false, false);
            else admin.recoverBookieData(lost);
        }
        return answer("bookie", task.text("bookie", ""), "seconds", (System.nanoTime() - start) / 1e9);
    }

    /** force: makes the entries of a DEFERRED_SYNC ledger durable; the LAC follows. */
    static Map<String, Object> force(Task task) throws Exception {
        task.held().force().get();
        return state(task.held());
    }

    /** leave: closes the client that these options name, with its connections. */
    static Map<String, Object> leave(Task task) throws Exception {
        BookKeeper client = CLIENTS.remove(task.clientKey());
        if (client != null) {
            Thread closing = new Thread(() -> { try { client.close(); } catch (Exception late) { late.printStackTrace(); } });  // Netty takes seconds for it
            closing.setDaemon(true);
            closing.start();
        }
        return answer("left", client != null);
    }

    static Map<String, Object> run(Task task) {
        try {
            return switch (task.command()) {
                case "write" -> write(task);
                case "lines" -> lines(task);
                case "create" -> create(task);
                case "append" -> append(task);
                case "await" -> RUNNING.remove(task.ledger()).get();
                case "close" -> close(task);
                case "force" -> force(task);
                case "leave" -> leave(task);
                case "read" -> read(task);
                case "random" -> random(task);
                case "recover" -> recover(task);
                case "recoveries" -> recoveries(task);
                case "lac" -> lac(task);
                case "tail" -> tail(task);
                case "many" -> many(task);
                case "ledgers" -> ledgers(task);
                case "delete" -> delete(task);
                case "list" -> list(task);
                case "metadata" -> metadata(task);
                case "bookies" -> bookies(task);
                case "info" -> info(task);
                case "repair" -> repair(task);
                default -> throw new IllegalArgumentException("no such command: " + task.command());
            };
        } catch (Throwable error) {
            return failure(error);
        }
    }

    static Task task(List<String> words, Map<String, String> defaults) {
        Map<String, String> options = new HashMap<>(defaults);
        for (String word : words.subList(1, words.size())) options.put(word.split("=", 2)[0], word.split("=", 2)[1]);
        return new Task(words.get(0), options);
    }

    public static void main(String[] args) throws Exception {
        Task first = task(Arrays.asList(args), Map.of());
        if (!first.command().equals("serve")) {
            Map<String, Object> found = run(first);
            System.out.println(json(found));
            System.exit(found.containsKey("error") ? 1 : 0);
        }
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = input.readLine()) != null; ) {
            System.out.println(json(run(task(List.of(line.split("\t")), first.options()))));
            System.out.flush();
        }
        System.exit(0);
    }
}
