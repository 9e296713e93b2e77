import java.nio.file.Path;
import java.util.Arrays;
import java.util.Set;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.stream.Collectors;
import java.util.stream.StreamSupport;
import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.JobStatus;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.WriterInitContext;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.execution.ExecutionState;
import org.apache.flink.runtime.executiongraph.AccessExecutionGraph;
import org.apache.flink.runtime.jobmaster.JobResult;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.graph.StreamGraph;
import org.apache.flink.table.api.ExplainDetail;
import org.apache.flink.table.api.bridge.java.StreamStatementSet;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.table.connector.ChangelogMode;
import org.apache.flink.table.connector.sink.DynamicTableSink;
import org.apache.flink.table.connector.sink.SinkV2Provider;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.factories.DynamicTableSinkFactory;
import org.apache.flink.types.RowKind;

/**
 * Runs {@code INSERT INTO counted SELECT * FROM source} several times in one Flink of one process, and prints a line of JSON for each run.
 *
 * <p>Arguments: a folder for checkpoints, how many runs, the table {@code source}, the columns of {@code counted}, the number of rows after
 * which the measured part of a run begins; then Flink's options, as {@code name=value}. The sink asks for all four row kinds, and counts
 * rows and sums their first column, a BIGINT, by row kind.
 *
 * <p>The times of a run are milliseconds since 1970-01-01 UTC: when all tasks were running, when the sink had received the first rows, and
 * when the job was finished.
 */
public class KindCount {
    private static final int KINDS = RowKind.values().length;

    /** Rows by row kind, and then sums by row kind. The job runs in this process: its writers add to it when their input ends. */
    private static final AtomicLongArray COUNTS = new AtomicLongArray(2 * KINDS);

    /** The writers add to {@link #RECEIVED} once in so many rows, because they share it. */
    private static final int STEP = 256;

    private static final AtomicLong RECEIVED = new AtomicLong();

    /** The rows at which the measured part begins, and the time when the sink had received them; 0 before. */
    private static long leftOut;

    private static final AtomicLong LEFT_OUT_AT = new AtomicLong();

    public static void main(String[] arguments) throws Exception {
        Path checkpoints = Path.of(arguments[0]);
        leftOut = Long.parseLong(arguments[4]);
        Configuration options = new Configuration();
        for (String option : Arrays.asList(arguments).subList(5, arguments.length)) {
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
            for (int run = 0; run < Integer.parseInt(arguments[1]); run++) {
                options.setString("execution.checkpointing.dir", checkpoints.resolve("run-" + run).toUri().toString());
                System.out.println(run(flink, job(options, arguments[2], arguments[3])));
            }
        }
        System.exit(0);
    }

    private static StreamGraph job(Configuration options, String source, String columns) {
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment(options);
        StreamTableEnvironment tables = StreamTableEnvironment.create(environment);
        tables.executeSql(source);
        tables.executeSql("CREATE TABLE counted (" + columns + ") WITH ('connector' = 'kind-count')");
        String insert = "INSERT INTO counted SELECT * FROM source";
        String plan = tables.explainSql(insert, ExplainDetail.CHANGELOG_MODE);
        if (!plan.contains("ChangelogNormalize") || !plan.contains("[I,UB,UA,D]")) {
            throw new IllegalStateException("the plan is not the one to be measured:\n" + plan);
        }
        StreamStatementSet statements = tables.createStatementSet();
        statements.addInsertSql(insert);
        statements.attachAsDataStream();
        return environment.getStreamGraph();
    }

    private static String run(MiniCluster flink, StreamGraph job) throws Exception {
        for (int index = 0; index < COUNTS.length(); index++) {
            COUNTS.set(index, 0);
        }
        RECEIVED.set(0);
        LEFT_OUT_AT.set(0);
        JobID id = flink.submitJob(job).get().getJobID();
        JobResult result = flink.requestJobResult(id).get();
        result.toJobExecutionResult(KindCount.class.getClassLoader()); // throws what the job failed with
        AccessExecutionGraph graph = flink.getExecutionGraph(id).get();
        long running =
                StreamSupport.stream(graph.getAllExecutionVertices().spliterator(), false)
                        .mapToLong(task -> task.getCurrentExecutionAttempt().getStateTimestamp(ExecutionState.RUNNING))
                        .max()
                        .orElseThrow();
        if (leftOut > 0 && LEFT_OUT_AT.get() == 0) {
            throw new IllegalStateException("the sink received fewer rows than the " + leftOut + " to leave out");
        }
        return String.format(
                "{\"running_ms\": %d, \"begin_ms\": %d, \"end_ms\": %d, \"checkpoints\": %d, \"rows\": %s, \"ids\": %s}",
                running,
                leftOut > 0 ? LEFT_OUT_AT.get() : running,
                graph.getStatusTimestamp(JobStatus.FINISHED),
                graph.getCheckpointStatsSnapshot().getCounts().getNumberOfCompletedCheckpoints(),
                byKind(0),
                byKind(KINDS));
    }

    private static String byKind(int first) {
        return Arrays.stream(RowKind.values())
                .filter(kind -> COUNTS.get(kind.ordinal()) > 0)
                .map(kind -> String.format("\"%s\": %d", kind.shortString(), COUNTS.get(first + kind.ordinal())))
                .collect(Collectors.joining(", ", "{", "}"));
    }

    /** The connector {@code kind-count}. */
    public static class Factory implements DynamicTableSinkFactory {
        @Override
        public String factoryIdentifier() {
            return "kind-count";
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
            return "kind-count";
        }
    }

    private static class Rows implements Sink<RowData> {
        @Override
        public SinkWriter<RowData> createWriter(WriterInitContext context) {
            return new Writer();
        }
    }

    private static class Writer implements SinkWriter<RowData> {
        private final long[] counts = new long[2 * KINDS];
        private int received;

        @Override
        public void write(RowData row, Context context) {
            int kind = row.getRowKind().ordinal();
            counts[kind]++;
            counts[KINDS + kind] += row.getLong(0);
            if (++received == STEP) {
                received = 0;
                if (RECEIVED.addAndGet(STEP) >= leftOut) {
                    LEFT_OUT_AT.compareAndSet(0, System.currentTimeMillis());
                }
            }
        }

        @Override
        public void flush(boolean endOfInput) {
            if (endOfInput) {
                for (int index = 0; index < counts.length; index++) {
                    COUNTS.addAndGet(index, counts[index]);
                }
            }
        }

        @Override
        public void close() {}
    }
}
