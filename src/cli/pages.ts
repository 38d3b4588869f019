import type { CommandContext } from "./context.ts";
import { calls, type App, type UnaryCall } from "./client/calls.ts";

/** Every page of a listing, each requested when needed. */
export async function* pagesOf<Request extends object, Page extends { readonly next_page_token?: string }>(
  context: CommandContext,
  call: UnaryCall<Request & { readonly page_token?: string }, Page>,
  request: Request,
): AsyncGenerator<Page> {
  let pageToken = "";
  do {
    context.throwIfInterrupted();
    const page = await context.call(call, { ...request, ...(pageToken !== "" && { page_token: pageToken }) });
    yield page;
    // An older daemon without pages returns the whole listing at once.
    pageToken = page.next_page_token ?? "";
  } while (pageToken !== "");
}

/** The apps of every page of the listing. */
export async function listAllApps(context: CommandContext): Promise<readonly App[]> {
  const apps: App[] = [];
  for await (const page of pagesOf(context, calls.listApps, {})) apps.push(...page.apps);
  return apps;
}
