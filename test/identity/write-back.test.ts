/** What is uploaded is brought to the disk while more comes. */
import test from "ava";
import { WriteBack } from "../../src/identity/helper/host/upload.mjs";

const pieces = [Buffer.alloc(20 << 20), Buffer.alloc(12 << 20)];

test("much is brought to the disk at a time, once at a time, and the end waits for it", async (t) => {
  const syncs: PromiseWithResolvers<undefined>[] = [];
  const writeBack = new WriteBack({
    datasync: async () => {
      const sync = Promise.withResolvers<undefined>();
      syncs.push(sync);
      await sync.promise;
    },
  });
  writeBack.count(pieces.slice(0, 1));
  t.is(syncs.length, 0);
  writeBack.count(pieces.slice(1));
  writeBack.count(pieces);
  t.is(syncs.length, 1);
  let hasEnded = false;
  const ending = writeBack.end().then(() => (hasEnded = true));
  await Promise.resolve();
  t.false(hasEnded);
  syncs[0]?.resolve(undefined);
  await ending;
  writeBack.count([]);
  t.is(syncs.length, 2);
  syncs[1]?.resolve(undefined);
  await writeBack.end();
});

test("bytes that the disk has lost end the upload", async (t) => {
  const writeBack = new WriteBack({ datasync: () => Promise.reject(new Error("EIO")) });
  writeBack.count(pieces);
  await t.throwsAsync(writeBack.end(), { message: "EIO" });
  // Also once it is over.
  await t.throwsAsync(writeBack.end(), { message: "EIO" });
});
