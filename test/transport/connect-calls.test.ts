/** Streams whose client leaves while it is written to, and answers that cannot be made. */
import { createClient } from "@connectrpc/connect";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { eventually } from "../support/eventually.ts";
import { listenersUnderTest, protocols, transportTo } from "./support/clients.ts";
import { openDoor } from "./support/door.ts";

for (const protocol of protocols) {
  for (const listener of listenersUnderTest) {
    test(`${protocol} over ${listener}: clients that leave while they are written to are no errors`, async (t) => {
      let open = 0;
      await using door = await openDoor({
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
      const client = createClient(AppService, transportTo(door, protocol, listener));
      const leave = async (): Promise<void> => {
        const leaving = new AbortController();
        await t.throwsAsync(async () => {
          for await (const _lines of client.streamAppLogs({ id: "hello" }, leaving)) leaving.abort();
        });
      };
      await Promise.all(Array.from({ length: 5 }, leave));
      await eventually(() => {
        if (open > 0) throw new Error(`${open} of them are still written to`);
      });
      t.deepEqual(new Set(door.counts), new Set(["svc.v1.AppService/StreamAppLogs canceled"]));
      t.deepEqual(
        door.lines.filter(({ level }) => level === "error"),
        [],
      );
    });
  }
}

for (const protocol of ["Connect/h1", "gRPC-Web/h1"] as const) {
  test(`${protocol}: an answer whose headers cannot be sent is an internal error`, async (t) => {
    await using door = await openDoor({
      handlers: {
        app: {
          async *streamAppLogs(_request, { responseHeader }) {
            responseHeader.set("x-odd", "\u0001");
            yield await Promise.resolve({ lines: [{ text: "never seen" }] });
          },
        },
      },
    });
    const client = createClient(AppService, transportTo(door, protocol, "TCP"));
    const signal = AbortSignal.timeout(5_000);
    await t.throwsAsync(
      async () => {
        for await (const _lines of client.streamAppLogs({ id: "hello" }, { signal }));
      },
      { message: /^\[internal\]/ },
    );
    t.like(door.lines, [{ level: "error", message: "a request failed unexpectedly" }]);
  });
}
