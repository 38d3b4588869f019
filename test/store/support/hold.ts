/** A process that holds the database's write lock until its standard input ends. Argument: the database. */
import { DatabaseSync } from "node:sqlite";

const database = new DatabaseSync(process.argv[2] ?? "", { timeout: 5_000 });
database.exec("BEGIN IMMEDIATE; INSERT INTO meta VALUES ('held', '')");
process.stdout.write("held\n");
process.stdin.resume().on("end", () => {
  database.exec("COMMIT");
  database.close();
});
