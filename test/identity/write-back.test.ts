/** What is uploaded goes to the disk while more comes. */
import test from "ava";
import { WriteBack } from "../../src/identity/helper/host/upload.mjs";

const pieces = [Buffer.alloc(10 << 20), Buffer.alloc(6 << 20)];

test("much goes to the disk at a time, once at a time, and nothing of it outlives the file", async (t) => {
  const begun: PromiseWithResolvers<undefined>[] = [];
  const writeBack = new WriteBack(async () => {
    const beginning = Promise.withResolvers<undefined>();
    begun.push(beginning);
    await beginning.promise;
  });
  writeBack.count(pieces.slice(0, 1));
  t.is(begun.length, 0);
  writeBack.count(pieces.slice(1));
  writeBack.count(pieces);
  t.is(begun.length, 1);
  let isOver = false;
  const ending = writeBack[Symbol.asyncDispose]().then(() => (isOver = true));
  for (let turn = 0; turn < 10; turn++) await Promise.resolve();
  t.false(isOver);
  begun[0]?.resolve(undefined);
  await ending;
  writeBack.count([]);
  t.is(begun.length, 2);
  begun[1]?.resolve(undefined);
  await writeBack[Symbol.asyncDispose]();
});
