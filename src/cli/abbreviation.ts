/**
 * Lets a person at a terminal abbreviate the IDs of their own apps. Scripts must pass the whole ID: a later app may
 * share the prefix.
 */
import { SvcError } from "../errors.ts";
import type { CommandContext } from "./context.ts";
import { sudoUid } from "./client/routing.ts";
import { asSvcError } from "./output/failure.ts";
import { pagesOf } from "./pages.ts";
import { calls, type UnaryCall } from "./client/calls.ts";

/**
 * Repeats a request that failed with `not_found`, with the full ID of the caller's only app that has the given
 * prefix. Apps of other users do not count: their owners choose the IDs, and could receive root's secrets or keystrokes.
 * @returns undefined if the request failed for another reason, or no app of the caller has this prefix
 * @throws SvcError if several apps have it
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
  const { caller } = await context.call(calls.getStatus, {});
  const owners = [caller?.uid, sudoUid(context.host)];
  const fitting: string[] = [];
  for await (const { apps } of pagesOf(context, calls.listApps, {})) {
    const own = apps.filter((app) => app.id.startsWith(id) && owners.includes(app.owner));
    fitting.push(...own.map((app) => app.id));
  }
  const [only] = fitting;
  if (fitting.length > 1) {
    const message = `no app "${id}"; several IDs have this prefix: ${fitting.slice(0, 5).join(", ")}`;
    throw new SvcError("not_found", message, { payload: { kind: "app", name: id } });
  }
  return only === undefined ? undefined : { ...request, id: only };
}

/** Commands that cannot be undone require the full ID. */
function mayAbbreviate({ path, httpMethod }: UnaryCall<never, unknown>): boolean {
  return path.startsWith("/v1/apps/{id}") && httpMethod !== "DELETE";
}
