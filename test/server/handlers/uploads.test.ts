import test from "ava";
import { WriteFileRequestSchema, type WriteFileRequest } from "../../../gen/svc/v1/file_pb.ts";
import { create } from "@bufbuild/protobuf";
import { contentsOf, firstOf } from "../../../src/server/handlers/uploads.ts";
import { peekFirst } from "../../../src/server/rpc/connect/first-message.ts";

test("the buffered bytes of a stalled sender are released when the call ends", async (t) => {
  async function* silent() {
    yield create(WriteFileRequestSchema, { path: "/tmp", content: { data: Buffer.from("begin") } });
    await new Promise(() => undefined);
  }
  const call = new AbortController();
  const stream = await peekFirst(silent(), call.signal);
  const { first, all } = await firstOf(stream.all as AsyncIterable<WriteFileRequest>);
  t.is(first.path, "/tmp");
  const contents = contentsOf(all);
  t.is(Buffer.from((await contents.next()).value as Uint8Array).toString(), "begin");
  const next = contents.next();
  call.abort(new Error("the call is over"));
  await t.throwsAsync(next, { message: "the call is over" });
});
