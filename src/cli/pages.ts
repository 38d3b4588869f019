import type { CommandContext } from "./context.ts";
import type { UnaryCall } from "./transport/calls.ts";

/** Every page of a listing, each asked for when it is wanted. */
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
    // A daemon from before this listing had pages answers it whole.
    pageToken = page.next_page_token ?? "";
  } while (pageToken !== "");
}
