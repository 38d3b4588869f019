/** `--detach`: the daemon continues the work, and the command returns at once. */
import type { DescMessage, MessageInitShape } from "@bufbuild/protobuf";
import { SvcError } from "../errors.ts";
import type { CommandContext } from "./context.ts";
import type { Method } from "./client/client.ts";

export interface DetachOption {
  readonly detach?: boolean;
}

export const detachOption = [
  "--detach",
  "print the operation's ID and return at once; the daemon continues the work",
] as const;

/** Starts the work and prints the ID of its operation. @param label what the work is about, such as `install hello` */
export async function detach<I extends DescMessage, O extends DescMessage>(
  context: CommandContext,
  label: string,
  method: Method<I, O>,
  request: MessageInitShape<I>,
): Promise<void> {
  const detached = { ...request, detach: true } as MessageInitShape<I>;
  const response = (await context.invokeOnce(method, [detached])) as { detached?: { readonly id: string } };
  const operation = response.detached;
  if (operation === undefined)
    throw new SvcError("not_implemented", `${label}: this daemon is too old for --detach; upgrade svc there`);
  if (context.json) return context.printJson(operation);
  context.note(`Started ${label}. Follow it: svc operations logs -f ${operation.id}`);
  return context.printLine(operation.id);
}
