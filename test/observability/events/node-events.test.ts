import assert from "node:assert/strict";
import test from "ava";
import type { Alert } from "../../../src/observability/alerts/alert-store.ts";
import type { EngineChange } from "../../../src/engine/engine-state.ts";
import { maySee } from "../../../src/observability/events/event-log.ts";
import { NodeEvents } from "../../../src/daemon/node-events.ts";
import { eventually } from "../../support/eventually.ts";

const root = { uid: 0, root: true };
const owner = { uid: 7, root: false };
const other = { uid: 8, root: false };
const never = new AbortController().signal;

/** Events of a host with the app `web` of uid 7. */
async function world() {
  const listeners = new Set<(change: EngineChange) => void>();
  const events = new NodeEvents({
    now: Date.now,
    onError: assert.ifError,
    finder: { ownerOf: (id) => (id === "web" ? owner.uid : undefined) },
    changes: { listen: () => Promise.resolve({ [Symbol.dispose]: () => undefined }) },
    engine: {
      onChange: (listener) => {
        listeners.add(listener);
        return { [Symbol.dispose]: () => void listeners.delete(listener) };
      },
    },
  });
  events.start();
  await eventually(() => assert.equal(listeners.size, 1));
  const heard = async (user: { uid: number; root: boolean }): Promise<string[]> => {
    const start = { after: "", past: true, untilNow: true };
    const all = await Array.fromAsync(events.log.follow(start, (event) => maySee(event, user), never));
    return all
      .filter(({ kind }) => kind !== "begin")
      .map(({ kind, appId = "", subject = "" }) => `${kind} ${appId} ${subject}`);
  };
  const change = (ids: readonly string[]): void => {
    for (const listener of listeners) listener({ kind: "containers", ids: new Set(ids) });
  };
  return { events, heard, change, [Symbol.asyncDispose]: () => events[Symbol.asyncDispose]() };
}

test("container events reach only root, each once within a window, and a storm of them as one", async (t) => {
  await using w = await world();
  w.change(["a"]);
  w.change(["a", "b"]);
  await eventually(async () =>
    assert.deepEqual(await w.heard(root), ["container.changed  a", "container.changed  b"]),
  );
  w.change(Array.from({ length: 21 }, (_, at) => String(at)));
  await eventually(async () => assert.equal((await w.heard(root)).at(-1), "container.changed  "));
  t.is((await w.heard(root)).length, 3);
  t.deepEqual(await w.heard(owner), []);
});

test("an app's alerts reach its owner, the host's reach everybody, and those of removed apps reach root", async (t) => {
  await using w = await world();
  const alert = (subject: string): Alert => ({
    ...{ rule: "r", subject, message: "m", firedAtMs: 1, isReported: false },
    resolvedAtMs: undefined,
  });
  w.events.onAlert(alert("web"), false);
  w.events.onAlert(alert("gone"), false);
  w.events.onAlert({ ...alert("/srv"), resolvedAtMs: 2 }, true);
  const [ofApp, ofGone, ofHost] = ["alert.began web web", "alert.began gone gone", "alert.ended  /srv"];
  t.deepEqual(await w.heard(root), [ofApp, ofGone, ofHost]);
  t.deepEqual(await w.heard(owner), [ofApp, ofHost]);
  t.deepEqual(await w.heard(other), [ofHost]);
});
