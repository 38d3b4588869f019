/** Who this tab acts as: signed out, or with a token that is in memory alone and goes with the tab. */
import { signal } from "@preact/signals";
import { createApi, describeError, isOfDaemon, type Api } from "./api.ts";
import { dropDrafts } from "./drafts.ts";
import { loadAgain } from "./load-again.ts";
import { NodeView } from "./node-view.ts";
import { codeIn, pathTo, route } from "./route.ts";
import { texts } from "./texts.ts";

export type Session =
  | { readonly kind: "out"; readonly message?: string }
  | { readonly kind: "working" }
  | {
      readonly kind: "in";
      readonly api: Api;
      readonly node: NodeView;
      /** The page opened it, and may end it. */
      readonly isOwn: boolean;
    };

export const session = signal<Session>({ kind: "out" });

/** Signs in with the code in the address, if there is one; it leaves the address and the history first. */
export async function signInByAddress(): Promise<void> {
  const code = codeIn(location.hash);
  if (code === undefined) return;
  const { view, args } = route.value;
  history.replaceState(undefined, "", view === "overview" ? location.pathname : pathTo(view, ...args));
  // Whose code it is may be another user's.
  if (session.value.kind === "in") session.value.node.close();
  session.value = { kind: "working" };
  try {
    enter(await trade(code), true);
  } catch (error) {
    session.value = { kind: "out", message: describeError(error) };
  }
}

/** A code that got there although the answer did not come is refused the next time, which says what to do. */
async function trade(code: string): Promise<string> {
  const { sessions } = createApi(code);
  const { token } = await loadAgain(
    () => sessions.openSession({}),
    (error) => !isOfDaemon(error),
  );
  return token;
}

/** With a token that was pasted in. */
export async function signIn(token: string): Promise<void> {
  session.value = { kind: "working" };
  try {
    await createApi(token).daemon.getStatus({});
    enter(token, false);
  } catch (error) {
    session.value = { kind: "out", message: describeError(error) };
  }
}

/** Ends the page's own session; a token that was pasted in goes on elsewhere. */
export async function signOut(): Promise<void> {
  const { value } = session;
  if (value.kind !== "in") return;
  value.node.close();
  dropDrafts();
  session.value = { kind: "out", message: texts.signIn.ended };
  if (value.isOwn) await value.api.sessions.endSessions({}).catch(() => undefined);
}

function enter(token: string, isOwn: boolean): void {
  const api = createApi(token);
  const node = new NodeView(api, (error) => {
    node.close();
    const why = describeError(error);
    session.value = { kind: "out", message: isOwn ? `${texts.signIn.over} ${why}` : why };
  });
  session.value = { kind: "in", api, node, isOwn };
}
