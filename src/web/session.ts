/**
 * The identity that the page acts as. A session outlives a reload: half of its token is an HttpOnly cookie, the other half is in
 * this origin's storage. A pasted token stays in the tab's memory while the connection holds.
 */
import { signal } from "@preact/signals";
import { createApi, describeError, isDaemonError, isUnauthenticated, type Api } from "./api.ts";
import { dropDrafts } from "./drafts.ts";
import { withRetries } from "./retry.ts";
import { NodeView } from "./node-view.ts";
import { codeIn, route } from "./route.ts";
import { texts } from "./texts.ts";

interface SignedIn {
  readonly kind: "in";
  readonly api: Api;
  readonly node: NodeView;
  /** The page opened the session and may end it; false for a pasted token. */
  readonly isOwn: boolean;
}

export type Session =
  | { readonly kind: "out"; readonly message?: string }
  | { readonly kind: "working" }
  /** The sign-in link is for a user other than the current one. */
  | {
      readonly kind: "asking";
      /** Undefined if nobody is signed in. */
      readonly current: string | undefined;
      readonly other: string;
      readonly answer: (mayIt: boolean) => void;
    }
  | SignedIn;

interface Identity {
  readonly uid: number;
  readonly user: string;
}

/** 2^32-1 means "no uid" to the kernel. */
const nobody = 2 ** 32 - 1;
/** In the storage: the half of the session's token that is not in the cookie. */
const keyName = "svc.session";

export const session = signal<Session>({ kind: "out" });

/** Signs in with the code in the address, which first leaves the address and the history; else resumes the stored session. */
export async function startSession(): Promise<void> {
  const code = codeIn(location.hash);
  if (code === undefined) {
    if (session.value.kind === "out") await resume();
    return;
  }
  history.replaceState(undefined, "", route.value.fragment || location.pathname);
  const before = session.value.kind === "in" ? session.value : undefined;
  session.value = { kind: "working" };
  try {
    await signInByCode(code, before);
  } catch (error) {
    before?.node.close();
    session.value = { kind: "out", message: describeError(error) };
  }
}

/**
 * Signs in with a pasted token. Unlike a session, it outlives the daemon: the page forgets it as soon as the connection breaks, since
 * another program may listen on the port then.
 */
export async function signIn(token: string): Promise<void> {
  session.value = { kind: "working" };
  let node: NodeView | undefined;
  const api = createApi(`Bearer ${token}`, () => {
    node?.close();
    const { value } = session;
    // A late failure must not end the session that replaced this one.
    if (value.kind !== "in" || value.api === api) session.value = { kind: "out", message: texts.signIn.lost };
  });
  try {
    await api.daemon.getStatus({});
    node = enter(api, false);
  } catch (error) {
    session.value = { kind: "out", message: describeError(error) };
  }
}

/** Ends the page's own session; a pasted token stays valid elsewhere. */
export async function signOut(): Promise<void> {
  const { value } = session;
  if (value.kind !== "in") return;
  value.node.close();
  dropDrafts();
  session.value = { kind: "out", message: texts.signIn.ended };
  if (!value.isOwn) return;
  localStorage.removeItem(keyName);
  await value.api.sessions.endSessions({}).catch(() => undefined);
}

async function resume(): Promise<void> {
  const api = storedApi();
  if (api === undefined) return;
  session.value = { kind: "working" };
  try {
    await withRetries(
      () => api.daemon.getStatus({}),
      (error) => !isDaemonError(error),
    );
    enter(api, true);
  } catch (error) {
    if (isUnauthenticated(error)) localStorage.removeItem(keyName);
    session.value = { kind: "out", message: overMessage(error) };
  }
}

async function signInByCode(code: string, before: SignedIn | undefined): Promise<void> {
  const stored = before === undefined ? storedApi() : undefined;
  const currentApi = before?.api ?? stored;
  const current = currentApi && (await identityOf(currentApi));
  const { sessions } = createApi(`Bearer ${code}`);
  const open = (currentUid?: number) =>
    // If the code arrived but the response was lost, the next try fails and says what to do.
    withRetries(
      () => sessions.openSession({ cookie: true, ...(currentUid !== undefined && { currentUid }) }),
      (error) => !isDaemonError(error),
    );
  const replaced = currentApi && before?.isOwn !== false ? await currentIdOf(currentApi) : undefined;
  // Also without a session: a link of another user would make the visitor act, and enter secrets, as that user.
  let opened = await open(current?.uid ?? nobody);
  if (opened.key === "") {
    if (!(await maySwitch(current, opened))) {
      session.value = before ?? { kind: "out" };
      if (before === undefined) await resume();
      return;
    }
    // After the end of a session, its user finds the drafts again; each draft is shown only to its user.
    if (current !== undefined) dropDrafts();
    if (currentApi !== undefined && replaced !== undefined)
      await currentApi.sessions.endSessions({}).catch(() => undefined);
    opened = await open();
  }
  before?.node.close();
  localStorage.setItem(keyName, opened.key);
  const api = createApi(`Session ${opened.key}`);
  enter(api, true);
  // The cookie of the former session is gone, and nobody else could end it.
  if (replaced !== undefined && current?.uid === opened.uid)
    await api.sessions.endSession({ id: replaced }).catch(() => undefined);
}

/** @returns undefined when the session has ended */
async function identityOf(api: Api): Promise<Identity | undefined> {
  const status = await api.daemon.getStatus({}).catch((error: unknown) => {
    if (isUnauthenticated(error)) return undefined;
    throw error;
  });
  return status?.caller;
}

async function currentIdOf(api: Api): Promise<string | undefined> {
  const { sessions } = await api.sessions.listSessions({}).catch(() => ({ sessions: [] }));
  return sessions.find(({ current }) => current)?.id;
}

async function maySwitch(current: Identity | undefined, other: Identity): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>();
  session.value = {
    kind: "asking",
    current: current && nameOf(current),
    other: nameOf(other),
    answer: resolve,
  };
  const may = await promise;
  session.value = { kind: "working" };
  return may;
}

function nameOf({ uid, user }: Identity): string {
  return user || String(uid);
}

function storedApi(): Api | undefined {
  const key = localStorage.getItem(keyName);
  return key === null ? undefined : createApi(`Session ${key}`);
}

function enter(api: Api, isOwn: boolean): NodeView {
  const node = new NodeView(api, (error) => {
    node.close();
    if (isOwn && isUnauthenticated(error)) localStorage.removeItem(keyName);
    session.value = { kind: "out", message: isOwn ? overMessage(error) : describeError(error) };
  });
  session.value = { kind: "in", api, node, isOwn };
  return node;
}

function overMessage(error: unknown): string {
  const why = describeError(error);
  return isUnauthenticated(error) ? `${texts.signIn.over} ${why}` : why;
}
