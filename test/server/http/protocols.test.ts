/** The same calls over every protocol and both listeners reach the same handler in the same way. */
import { createClient, ConnectError } from "@connectrpc/connect";
import test from "ava";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { DaemonService } from "../../../gen/svc/v1/daemon_pb.ts";
import { FileService } from "../../../gen/svc/v1/file_pb.ts";
import { SvcError } from "../../../src/errors.ts";
import { svcErrorOf } from "../../../src/server/rpc/connect/connect-errors.ts";
import { listenersUnderTest, protocols, rest, transportTo } from "./support/clients.ts";
import { openDoor } from "./support/door.ts";
import type { FakeHandlers } from "./support/fake-services.ts";

const handlers: FakeHandlers = {
  app: {
    startApp: () => {
      throw new SvcError("owned_by_app", "no", { payload: { appId: "hello" } });
    },
    stopApp: () => {
      throw new Error("secret /var/lib/svc/path");
    },
    async *streamAppLogs({ id, tail }) {
      for (let n = 0; n < (tail ?? 0); n++) {
        await Promise.resolve();
        yield { lines: [{ text: `${id} ${n}` }] };
      }
    },
  },
  file: {
    async writeFile(requests) {
      let size = 0;
      let path = "";
      for await (const request of requests) {
        path ||= request.path;
        size += request.content?.data.length ?? 0;
      }
      return { name: path, sizeBytes: BigInt(size) };
    },
  },
};

for (const listener of listenersUnderTest) {
  for (const protocol of protocols) {
    const title = (what: string): string => `${protocol} on ${listener}: ${what}`;

    test(title("a unary call knows its caller"), async (t) => {
      await using door = await openDoor({ handlers });
      const client = createClient(DaemonService, transportTo(door, protocol, listener));
      const status = await client.getStatus({});
      t.is(status.version, listener === "TCP" ? "primary" : "peer");
      t.is(status.caller?.uid, process.getuid?.());
    });

    test(title("a stream arrives in order"), async (t) => {
      await using door = await openDoor({ handlers });
      const client = createClient(AppService, transportTo(door, protocol, listener));
      const texts: string[] = [];
      for await (const { lines } of client.streamAppLogs({ id: "hello", tail: 3 })) {
        texts.push(...lines.map((line) => line.text));
      }
      t.deepEqual(texts, ["hello 0", "hello 1", "hello 2"]);
    });

    test(title("a request stream arrives whole"), async (t) => {
      await using door = await openDoor({ handlers });
      const client = createClient(FileService, transportTo(door, protocol, listener));
      const entry = await client.writeFile(
        (async function* () {
          for (let n = 0; n < 10; n++) {
            await Promise.resolve();
            yield { path: "/tmp/x", content: { data: new Uint8Array(10_000) } };
          }
        })(),
      );
      t.is(entry.sizeBytes, 100_000n);
    });

    test(title("a domain error keeps code, reason and payload"), async (t) => {
      await using door = await openDoor({ handlers });
      const client = createClient(AppService, transportTo(door, protocol, listener));
      const error = svcErrorOf(
        await t.throwsAsync(client.startApp({ id: "hello" }), { instanceOf: ConnectError }),
      );
      t.like(error, { code: "failed_precondition", reason: "owned_by_app", message: "no" });
      t.like(error.payload, { appId: "hello" });
    });

    test(title("a defect answers with a request id and nothing of its own"), async (t) => {
      await using door = await openDoor({ handlers });
      const client = createClient(AppService, transportTo(door, protocol, listener));
      const error = svcErrorOf(
        await t.throwsAsync(client.stopApp({ id: "hello" }), { instanceOf: ConnectError }),
      );
      t.is(error.reason, "internal");
      t.notRegex(error.message, /secret|var/);
      const { requestId } = error.payload as { requestId: string };
      const line = door.lines.find(({ level }) => level === "error");
      t.is(line?.details["requestId"], requestId);
      t.regex(String(line?.details["err"]), /secret/);
    });

    test(title("broken rules name their fields"), async (t) => {
      await using door = await openDoor({ handlers });
      const client = createClient(AppService, transportTo(door, protocol, listener));
      const error = svcErrorOf(await t.throwsAsync(client.startApp({}), { instanceOf: ConnectError }));
      t.like(error.payload, { violations: [{ field: "id", description: "is required" }] });
    });

    test(title("what comes later is unimplemented, after validation"), async (t) => {
      await using door = await openDoor({ handlers });
      const client = createClient(AppService, transportTo(door, protocol, listener));
      const later = svcErrorOf(
        await t.throwsAsync(client.removeApp({ id: "x" }), { instanceOf: ConnectError }),
      );
      t.like(later, { code: "unimplemented", reason: "not_implemented" });
      const invalid = svcErrorOf(await t.throwsAsync(client.removeApp({}), { instanceOf: ConnectError }));
      t.is(invalid.code, "invalid_argument");
    });

    if (listener === "TCP") {
      test(title("an unknown token is unauthenticated"), async (t) => {
        await using door = await openDoor({ handlers });
        for (const token of ["", "svcp_wrong"]) {
          const client = createClient(AppService, transportTo(door, protocol, listener, { token }));
          const unary = svcErrorOf(
            await t.throwsAsync(client.startApp({ id: "x" }), { instanceOf: ConnectError }),
          );
          t.like(unary, { code: "unauthenticated", reason: "unauthenticated" });
          const stream = client.streamAppLogs({ id: "x" })[Symbol.asyncIterator]();
          const streamed = svcErrorOf(await t.throwsAsync(stream.next(), { instanceOf: ConnectError }));
          t.like(streamed, { code: "unauthenticated", reason: "unauthenticated" });
        }
        t.deepEqual(
          door.audits.map(({ method, user, result }) => [method, user.kind, result]),
          Array.from({ length: 2 }, () => ["svc.v1.AppService/StartApp", "anonymous", "unauthenticated"]),
        );
      });
    }
  }

  test(`REST on ${listener}: the same calls`, async (t) => {
    await using door = await openDoor({ handlers });
    const status = await rest(door, "/v1/status", { listener });
    t.is(status.status, 200);
    t.is(status.json.version, listener === "TCP" ? "primary" : "peer");
    t.regex(String(status.headers["x-request-id"]), /^[0-9a-f]{8}-/);

    const owned = await rest(door, "/v1/apps/hello/start", { method: "POST", listener });
    t.is(owned.status, 409);
    t.deepEqual(owned.json, {
      error: "no",
      code: "failed_precondition",
      reason: "owned_by_app",
      owned_by_app: { app_id: "hello" },
    });

    const defect = await rest(door, "/v1/apps/hello/stop", { method: "POST", listener });
    t.is(defect.status, 500);
    t.is(defect.json.internal.request_id, defect.headers["x-request-id"]);
    t.notRegex(defect.text, /secret|var/);

    const later = await rest(door, "/v1/apps/hello", { method: "DELETE", listener });
    t.is(later.status, 501);

    const upload = await rest(door, "/v1/files/content?path=/tmp/x", {
      method: "PUT",
      body: "x".repeat(1000),
      headers: { "content-type": "application/octet-stream" },
      listener,
    });
    t.is(upload.status, 200, upload.text);
    t.deepEqual(
      door.audits.map(({ method, target, result }) => [method.split("/")[1], target, result]),
      [
        ["StartApp", "hello", "failed_precondition"],
        ["StopApp", "hello", "internal"],
        ["RemoveApp", "hello", "unimplemented"],
        ["WriteFile", "/tmp/x", "ok"],
      ],
    );
  });
}
