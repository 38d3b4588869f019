/** Streams whose client disconnects while they are written, and responses that cannot be sent. */
import { gzipSync } from "node:zlib";
import { create, toBinary } from "@bufbuild/protobuf";
import { createClient } from "@connectrpc/connect";
import test from "ava";
import { AppService, GetAppRequestSchema } from "../../../gen/svc/v1/app_pb.ts";
import { eventually } from "../../support/eventually.ts";
import { listenersUnderTest, protocols, transportTo } from "./support/clients.ts";
import { openGateway } from "./support/gateway.ts";

/** Messages of Connect's adapters about calls that they consider defects. */
const printed: unknown[][] = [];
test.before(() => {
  console.error = (...words: unknown[]) => void printed.push(words);
});
test.after("the adapters printed nothing", (t) => {
  t.deepEqual(printed, []);
});

for (const protocol of protocols) {
  for (const listener of listenersUnderTest) {
    test(`${protocol} over ${listener}: clients that disconnect during a response are not errors`, async (t) => {
      let open = 0;
      await using gateway = await openGateway({
        handlers: {
          app: {
            async *streamAppLogs() {
              open++;
              try {
                for (;;) yield await Promise.resolve({ lines: [{ text: "x".repeat(65_536) }] });
              } finally {
                open--;
              }
            },
          },
        },
      });
      const client = createClient(AppService, transportTo(gateway, protocol, listener));
      const leave = async (): Promise<void> => {
        const leaving = new AbortController();
        await t.throwsAsync(async () => {
          for await (const _lines of client.streamAppLogs({ id: "hello" }, leaving)) leaving.abort();
        });
      };
      await Promise.all(Array.from({ length: 5 }, leave));
      await eventually(() => {
        if (open > 0) throw new Error(`${open} of them are still being written`);
      });
      t.deepEqual(new Set(gateway.counts), new Set(["svc.v1.AppService/StreamAppLogs canceled"]));
      t.deepEqual(
        gateway.lines.filter(({ level }) => level === "error"),
        [],
      );
    });
  }
}

for (const protocol of ["Connect/h1", "gRPC-Web/h1"] as const) {
  for (const isEmpty of [false, true]) {
    test(`${protocol}: ${isEmpty ? "an empty stream" : "a stream"} whose headers cannot be sent is an internal error`, async (t) => {
      await using gateway = await openGateway({
        handlers: {
          app: {
            async *streamAppLogs(_request, { responseHeader }) {
              responseHeader.set("x-odd", "\u0001");
              if (!isEmpty) yield await Promise.resolve({ lines: [{ text: "never seen" }] });
            },
          },
        },
      });
      const client = createClient(AppService, transportTo(gateway, protocol, "TCP"));
      const signal = AbortSignal.timeout(20_000);
      await t.throwsAsync(
        async () => {
          for await (const _lines of client.streamAppLogs({ id: "hello" }, { signal }));
        },
        { message: /^\[internal\]/ },
      );
      t.like(gateway.lines, [{ level: "error", message: "unexpected error in a request" }]);
    });
  }
}

test("Connect/h1: a compressed unary response whose headers cannot be sent is an internal error", async (t) => {
  await using gateway = await openGateway({
    handlers: {
      app: {
        getApp(_request, { responseHeader }) {
          responseHeader.set("x-odd", "\u0001");
          return {};
        },
      },
    },
  });
  const answer = await fetch(`${gateway.url}/svc.v1.AppService/GetApp`, {
    method: "POST",
    headers: {
      authorization: `Bearer ${gateway.token}`,
      "content-type": "application/proto",
      "content-encoding": "gzip",
    },
    body: gzipSync(toBinary(GetAppRequestSchema, create(GetAppRequestSchema, { id: "hello" }))),
    signal: AbortSignal.timeout(20_000),
  });
  t.is(answer.status, 500);
  t.like(await answer.json(), { code: "internal" });
});
