/** A stream that is subscribed again after its daemon was unavailable. */
import type { DescMessage, MessageInitShape, MessageShape } from "@bufbuild/protobuf";
import { LostConnection } from "./outage.ts";
import type { CommandContext } from "../context.ts";
import type { Method } from "../client/client.ts";

/** A stream that has lasted this long, in milliseconds, was established even if it sent nothing. */
const establishedMs = 1_000;

/** @param request returns the request for each subscription */
export async function* follow<I extends DescMessage, O extends DescMessage>(
  context: CommandContext,
  method: Method<I, O>,
  request: () => MessageInitShape<I>,
): AsyncGenerator<MessageShape<O>, void> {
  const client = await context.client();
  // A daemon that is unreachable from the beginning is an error at once; in-process calls cannot lose their
  // daemon.
  const mayReconnect = (await client.outlives()) && (await client.isAvailable(context.host.interrupted));
  const outage = new LostConnection(context);
  for (let isEstablished = false; ;) {
    const startMs = performance.now();
    try {
      for await (const message of context.invoke(method, [request()])) {
        isEstablished = true;
        outage.end();
        yield message;
      }
      return;
    } catch (error) {
      if (performance.now() - startMs >= establishedMs) {
        isEstablished = true;
        outage.end();
      }
      if (!mayReconnect || !isEstablished) throw error;
      await outage.wait(error);
    }
  }
}
