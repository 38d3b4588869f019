/**
 * Lets a person at a terminal abbreviate the IDs of their own apps, and suggests one for a mistyped ID. Scripts must
 * pass the whole ID: a later app may share the prefix.
 */
import { notFound, type ReasonPayloads } from "../errors.ts";
import type { CommandContext } from "./context.ts";
import { sudoUid } from "./client/routing.ts";
import { nearWord } from "../lib/near-word.ts";
import { AdvisedError, asSvcError } from "./output/failure.ts";
import { pagesOf } from "./pages.ts";
import { calls, type App, type UnaryCall } from "./client/calls.ts";

/** Maximum time for the list of apps that a suggestion needs. */
const suggestionLimitMs = 3_000;

/**
 * Repeats a request that failed with `not_found`, with the full ID of the caller's only app that has the given
 * prefix. Apps of other users do not count: their owners choose the IDs, and could receive root's secrets or keystrokes.
 * @returns undefined if the request failed for another reason, or no app of the caller has this prefix
 * @throws AdvisedError if several apps have it
 */
export async function unabbreviated<Request>(
  context: CommandContext,
  { call, request, error }: { call: UnaryCall<Request, unknown>; request: Request; error: unknown },
): Promise<(Request & { readonly id: string }) | undefined> {
  const { id } = request as { readonly id?: unknown };
  if (typeof id !== "string" || id === "" || !mayAbbreviate(call) || missingApp(error) !== id)
    return undefined;
  const fitting = (await ownApps(context)).map((app) => app.id).filter((own) => own.startsWith(id));
  const [only] = fitting;
  if (fitting.length > 1) {
    const message = `no app "${id}"; several IDs have this prefix: ${fitting.slice(0, 5).join(", ")}`;
    throw new AdvisedError(notFound("app", id), message);
  }
  return only === undefined ? undefined : { ...request, id: only };
}

/**
 * The error, with the caller's app that has the missing ID as its name, or whose ID it probably means; for a job of no
 * such app, else with all of the caller's apps. Other users' apps do not count.
 */
export async function withNearId(context: CommandContext, error: unknown): Promise<unknown> {
  const known = asSvcError(error);
  const missingInJob = missingAppOfJob(error);
  const missing = missingApp(error) ?? missingInJob;
  if (known === undefined || known instanceof AdvisedError || missing === undefined) return error;
  const apps = await ownApps(context.uninterrupted(suggestionLimitMs)).catch(() => []);
  const named = apps.find(({ name }) => name === missing);
  if (named !== undefined)
    return new AdvisedError(known, `${known.message}; the app named "${missing}" has the ID "${named.id}"`);
  const ids = apps.map(({ id }) => id);
  const near = nearWord(missing, ids);
  if (near !== undefined) return new AdvisedError(known, `${known.message}; did you mean "${near}"?`);
  if (missingInJob === undefined) return error;
  const yours = ids.length === 0 ? "you have no apps" : `your apps: ${ids.join(", ")}`;
  return new AdvisedError(known, `${known.message}; ${yours}`);
}

/** The ID of the app that a job names and its owner does not have; undefined for other errors. */
export function missingAppOfJob(error: unknown): string | undefined {
  const { violations = [] } = (asSvcError(error)?.payload ?? {}) as Partial<
    ReasonPayloads["invalid_request"]
  >;
  return violations
    .filter(({ field = "" }) => field.endsWith("action.app"))
    .map(({ description = "" }) => /^no app "(.*)"$/s.exec(description)?.[1])
    .find((app) => app !== undefined);
}

/** The ID of the app that was not found; undefined for other errors. */
function missingApp(error: unknown): string | undefined {
  const known = asSvcError(error);
  const missing = known?.payload as { readonly kind?: string; readonly name?: string } | undefined;
  return known?.reason === "not_found" && missing?.kind === "app" ? missing.name : undefined;
}

/** The caller's apps; those of the user who called sudo, too. */
async function ownApps(context: CommandContext): Promise<readonly App[]> {
  const { caller } = await context.call(calls.getStatus, {});
  const owners = [caller?.uid, sudoUid(context.host)];
  const own: App[] = [];
  for await (const { apps } of pagesOf(context, calls.listApps, {}))
    own.push(...apps.filter(({ owner }) => owners.includes(owner)));
  return own;
}

/** Commands that cannot be undone require the full ID. */
function mayAbbreviate({ path, httpMethod }: UnaryCall<never, unknown>): boolean {
  return path.startsWith("/v1/apps/{id}") && httpMethod !== "DELETE";
}
