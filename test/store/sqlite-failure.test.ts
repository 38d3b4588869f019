import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import test from "ava";
import { storeError } from "../../src/store/sqlite-failure.ts";
import { temporaryDir } from "./support/temporary-store.ts";

test("a disk that can only be read is said, and not called an internal error", async (t) => {
  await using dir = await temporaryDir();
  const path = join(dir.path, "some.db");
  new DatabaseSync(path).close();
  using database = new DatabaseSync(path, { readOnly: true });
  const error = t.throws(() => database.exec("CREATE TABLE t (x)"));
  const told = storeError(error);
  t.is(told.reason, "unavailable");
  t.regex(told.message, /^the disk that holds the store fails or can only be read: see the kernel's log/);
});
