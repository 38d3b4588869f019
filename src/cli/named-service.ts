/** People name a service after its app, as docker compose does: `svc logs shop worker`, or `svc logs shop/worker`. */
import type { CommandContext } from "./context.ts";
import { calls } from "./client/calls.ts";
import { ifFound } from "./output/failure.ts";

export interface NamedService {
  readonly app: string;
  readonly service: string;
}

/** @returns undefined if the words are not a compose project and one of its services */
export async function namedService(
  context: CommandContext,
  words: readonly string[],
): Promise<NamedService | undefined> {
  const [app = "", service = "", ...others] = words.length === 1 ? (words[0] ?? "").split("/") : words;
  if (service === "" || others.length > 0) return undefined;
  if (words.length > 1 && (await ifFound(context.call(calls.getApp, { id: service }))) !== undefined)
    return undefined;
  return (await servicesOf(context, app)).includes(service) ? { app, service } : undefined;
}

/** Empty for other runtimes, and for an app that cannot be read. */
async function servicesOf(context: CommandContext, id: string): Promise<readonly string[]> {
  const { AppService } = await import("../../gen/svc/v1/app_pb.ts");
  const image = context.invokeOnce(AppService.method.getAppImage, [{ id }]).catch(() => undefined);
  return ((await image)?.services ?? []).map(({ service }) => service);
}
