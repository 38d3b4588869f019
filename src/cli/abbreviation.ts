/** Ids that somebody at a terminal types in part. A script names them whole: tomorrow another app may begin like that. */
import { SvcError } from "../errors.ts";
import type { CommandContext } from "./context.ts";
import { asSvcError } from "./failure.ts";
import { pagesOf } from "./pages.ts";
import { calls, type UnaryCall } from "./transport/calls.ts";

/**
 * The request with the whole id of the one app that begins with what it has, after it was refused.
 * @returns undefined where it was refused for something else, or no app begins so
 * @throws SvcError where several do
 */
export async function unabbreviated<Request>(
  context: CommandContext,
  { call, request, error }: { call: UnaryCall<Request, unknown>; request: Request; error: unknown },
): Promise<(Request & { readonly id: string }) | undefined> {
  const { id } = request as { readonly id?: unknown };
  const known = asSvcError(error);
  if (known === undefined || typeof id !== "string" || id === "" || !mayAbbreviate(call)) return undefined;
  const missing = known.payload as { readonly kind?: string; readonly name?: string } | undefined;
  if (known.reason !== "not_found" || missing?.kind !== "app" || missing.name !== id) return undefined;
  const fitting: string[] = [];
  for await (const { apps } of pagesOf(context, calls.listApps, {})) {
    fitting.push(...apps.map((app) => app.id).filter((each) => each.startsWith(id)));
  }
  const [only] = fitting;
  if (fitting.length > 1) {
    const message = `no app "${id}"; several begin so: ${fitting.slice(0, 5).join(", ")}`;
    throw new SvcError("not_found", message, { payload: { kind: "app", name: id } });
  }
  return only === undefined ? undefined : { ...request, id: only };
}

/** What cannot be undone takes the whole id. */
function mayAbbreviate({ path, httpMethod }: UnaryCall<never, unknown>): boolean {
  return path.startsWith("/v1/apps/{id}") && httpMethod !== "DELETE";
}
