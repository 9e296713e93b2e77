import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.LongAdder;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.StreamSupport;
import org.apache.flink.api.common.JobID;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.execution.ExecutionState;
import org.apache.flink.runtime.executiongraph.AccessExecutionGraph;
import org.apache.flink.runtime.jobmaster.JobResult;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.graph.StreamGraph;
import org.apache.flink.table.api.bridge.java.StreamStatementSet;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.table.connector.ChangelogMode;
import org.apache.flink.table.connector.sink.DynamicTableSink;
import org.apache.flink.table.connector.sink.SinkV2Provider;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.factories.DynamicTableSinkFactory;
import org.apache.flink.types.RowKind;

/**
 * Runs {@code INSERT INTO counted SELECT * FROM source} for several tables in one Flink of one process, and prints a line of JSON for each.
 *
 * <p>Arguments: a folder for checkpoints; a file of lines {@code rows TAB table}, how many rows are to come and the statement that makes
 * {@code source}; the columns of {@code counted}; then Flink's options, as {@code name=value}. The sink counts rows and sums their first
 * column, a BIGINT, and their fourth, a DECIMAL(12, 2), by row kind. A job that does not end when its rows are there is cancelled.
 */
public class CaptureCount {
    private static final int KINDS = RowKind.values().length;
    private static final int PRICE = 3;
    private static final long GRACE_SECONDS = 5;

    /** Rows by row kind, then sums of ids, then of prices in hundredths. The job runs in this process, and adds as rows come. */
    private static final LongAdder[] COUNTS = IntStream.range(0, 3 * KINDS).mapToObj(index -> new LongAdder()).toArray(LongAdder[]::new);

    public static void main(String[] arguments) throws Exception {
        Configuration options = new Configuration();
        for (String option : Arrays.asList(arguments).subList(3, arguments.length)) {
            String[] pair = option.split("=", 2);
            options.setString(pair[0], pair[1]);
        }
        MiniClusterConfiguration cluster =
                new MiniClusterConfiguration.Builder()
                        .setConfiguration(options)
                        .setNumTaskManagers(1)
                        .setNumSlotsPerTaskManager(Integer.parseInt(options.getString("parallelism.default", "1")))
                        .build();
        try (MiniCluster flink = new MiniCluster(cluster)) {
            flink.start();
            int number = 0;
            for (String line : Files.readAllLines(Path.of(arguments[1]))) {
                String[] job = line.split("\t", 2);
                Path checkpoints = Path.of(arguments[0]).resolve("run-" + number++);
                options.setString("execution.checkpointing.dir", checkpoints.toUri().toString());
                System.out.println(run(flink, options, Long.parseLong(job[0]), job[1], arguments[2]));
            }
        }
        System.exit(0);
    }

    private static String run(MiniCluster flink, Configuration options, long expected, String source, String columns) throws Exception {
        Arrays.stream(COUNTS).forEach(LongAdder::reset);
        List<String> points = new ArrayList<>();
        long start = System.currentTimeMillis();
        JobID id = flink.submitJob(job(options, source, columns).getJobGraph()).get().getJobID();
        CompletableFuture<JobResult> result = flink.requestJobResult(id);
        long rows = 0;
        while (rows < expected && !result.isDone()) {
            Thread.sleep(20);
            long now = total();
            if (now > rows) {
                rows = now;
                points.add(String.format("[%d, %d]", System.currentTimeMillis(), rows));
            }
        }
        long running = end(flink, id, result);
        return String.format(
                "{\"start_ms\": %d, \"running_ms\": %d, \"points\": %s, \"counts\": %s}", start, running, points, counts());
    }

    private static StreamGraph job(Configuration options, String source, String columns) {
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment(options);
        StreamTableEnvironment tables = StreamTableEnvironment.create(environment);
        tables.executeSql(source);
        tables.executeSql("CREATE TABLE counted (" + columns + ") WITH ('connector' = 'capture-count')");
        StreamStatementSet statements = tables.createStatementSet();
        statements.addInsertSql("INSERT INTO counted SELECT * FROM source");
        statements.attachAsDataStream();
        return environment.getStreamGraph();
    }

    /** Wait for the end of a job, or cancel it; return when the last of its tasks began to run. */
    private static long end(MiniCluster flink, JobID id, CompletableFuture<JobResult> result) throws Exception {
        try {
            result.get(GRACE_SECONDS, TimeUnit.SECONDS).toJobExecutionResult(CaptureCount.class.getClassLoader());
        } catch (TimeoutException unbounded) {
            flink.cancelJob(id).get();
            result.get();
        }
        AccessExecutionGraph graph = flink.getExecutionGraph(id).get();
        return StreamSupport.stream(graph.getAllExecutionVertices().spliterator(), false)
                .mapToLong(task -> task.getCurrentExecutionAttempt().getStateTimestamp(ExecutionState.RUNNING))
                .max()
                .orElseThrow();
    }

    private static long total() {
        return Arrays.stream(COUNTS).limit(KINDS).mapToLong(LongAdder::sum).sum();
    }

    private static String counts() {
        return Arrays.stream(RowKind.values())
                .filter(kind -> COUNTS[kind.ordinal()].sum() > 0)
                .map(kind -> String.format("\"%s\": [%s]", kind.shortString(), counts(kind)))
                .collect(Collectors.joining(", ", "{", "}"));
    }

    private static String counts(RowKind kind) {
        return IntStream.range(0, 3)
                .mapToObj(part -> Long.toString(COUNTS[part * KINDS + kind.ordinal()].sum()))
                .collect(Collectors.joining(", "));
    }

    /** The connector {@code capture-count}. */
    public static class Factory implements DynamicTableSinkFactory {
        @Override
        public String factoryIdentifier() {
            return "capture-count";
        }

        @Override
        public Set<ConfigOption<?>> requiredOptions() {
            return Set.of();
        }

        @Override
        public Set<ConfigOption<?>> optionalOptions() {
            return Set.of();
        }

        @Override
        public DynamicTableSink createDynamicTableSink(Context context) {
            return new Table();
        }
    }

    private static class Table implements DynamicTableSink {
        @Override
        public ChangelogMode getChangelogMode(ChangelogMode requested) {
            return ChangelogMode.all();
        }

        @Override
        public SinkRuntimeProvider getSinkRuntimeProvider(Context context) {
            return SinkV2Provider.of(new Rows());
        }

        @Override
        public DynamicTableSink copy() {
            return new Table();
        }

        @Override
        public String asSummaryString() {
            return "capture-count";
        }
    }

    private static class Rows implements Sink<RowData> {
        @Override
        @SuppressWarnings("deprecation") // Flink 1.20 still requires it
        public SinkWriter<RowData> createWriter(InitContext context) {
            return new Writer();
        }
    }

    private static class Writer implements SinkWriter<RowData> {
        @Override
        public void write(RowData row, Context context) {
            int kind = row.getRowKind().ordinal();
            COUNTS[kind].increment();
            COUNTS[KINDS + kind].add(row.getLong(0));
            COUNTS[2 * KINDS + kind].add(row.getDecimal(PRICE, 12, 2).toUnscaledLong());
        }

        @Override
        public void flush(boolean endOfInput) {}

        @Override
        public void close() {}
    }
}
