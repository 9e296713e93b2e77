import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import org.apache.flink.api.common.JobID;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.bridge.java.StreamStatementSet;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;

/**
 * Runs statements of SQL in a Flink of one process until it is killed: all INSERTs in one job.
 *
 * <p>Arguments: a file with a statement a line; then Flink's options, as {@code name=value}.
 */
public class JdbcCopy {
    public static void main(String[] arguments) throws Exception {
        Configuration options = new Configuration();
        for (String option : Arrays.asList(arguments).subList(1, arguments.length)) {
            String[] pair = option.split("=", 2);
            options.setString(pair[0], pair[1]);
        }
        MiniClusterConfiguration cluster =
                new MiniClusterConfiguration.Builder()
                        .setConfiguration(options)
                        .setNumTaskManagers(1)
                        .setNumSlotsPerTaskManager(Integer.parseInt(options.getString("parallelism.default", "1")))
                        .build();
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment(options);
        StreamTableEnvironment tables = StreamTableEnvironment.create(environment);
        StreamStatementSet inserts = tables.createStatementSet();
        for (String statement : Files.readAllLines(Path.of(arguments[0]))) {
            if (statement.startsWith("INSERT")) {
                inserts.addInsertSql(statement);
            } else {
                tables.executeSql(statement);
            }
        }
        inserts.attachAsDataStream();
        try (MiniCluster flink = new MiniCluster(cluster)) {
            flink.start();
            JobID job = flink.submitJob(environment.getStreamGraph()).get().getJobID();
            flink.requestJobResult(job).get().toJobExecutionResult(JdbcCopy.class.getClassLoader());
        }
    }
}
