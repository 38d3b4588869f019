/** A stream that begins again where its daemon went away. */
import type { DescMessage, MessageInitShape, MessageShape } from "@bufbuild/protobuf";
import { Away } from "./away.ts";
import type { CommandContext } from "./context.ts";
import type { Method } from "./transport/client.ts";

/** A stream that has lasted for so long has begun, though it had nothing to tell. */
const begunMs = 1_000;

/** @param request what to ask for, each time that it begins */
export async function* follow<I extends DescMessage, O extends DescMessage>(
  context: CommandContext,
  method: Method<I, O>,
  request: () => MessageInitShape<I>,
): AsyncGenerator<MessageShape<O>, void> {
  const client = await context.client();
  // One that cannot be reached at all is told at once, and this process does not go away from itself.
  const mayGoAway = (await client.outlives()) && (await client.isThere(context.host.interrupted));
  const away = new Away(context);
  for (let hasBegun = false; ;) {
    const startMs = performance.now();
    try {
      for await (const message of context.invoke(method, [request()])) {
        hasBegun = true;
        away.end();
        yield message;
      }
      return;
    } catch (error) {
      if (performance.now() - startMs >= begunMs) {
        hasBegun = true;
        away.end();
      }
      if (!mayGoAway || !hasBegun) throw error;
      await away.wait(error);
    }
  }
}
