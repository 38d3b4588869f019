/**
 * An operation on an app's containers during which the engine stops fails with that reason, whatever the engine's last
 * error is.
 */
import test from "ava";
import { SvcError } from "../../src/errors.ts";
import {
  ContainerRuntime,
  type ContainerRuntimeOptions,
} from "../../src/runtimes/containers/container-runtime.ts";
import type { RunnableApp } from "../../src/runtimes/runnable-app.ts";
import { failureOf } from "./support/container-tests.ts";

const app = { id: "web" } as RunnableApp;
const refusal = new SvcError("not_possible", "the container engine could not stop it: context canceled");

type Ending = Pick<ContainerRuntime, "stop" | "remove">;

/** A runtime that fails all operations, and whose engine changes as `happens` says. */
function refusing(happens: (events: { error?: SvcError; generation: number }) => void): Ending {
  const nothing = (): Disposable => ({ [Symbol.dispose]: () => undefined });
  const events = { generation: 1, listen: nothing };
  const refuse = (): Promise<never> => {
    happens(events);
    return Promise.reject(refusal);
  };
  class Refusing extends (ContainerRuntime as unknown as new (options: ContainerRuntimeOptions) => Ending) {
    end = refuse;
    clear = refuse;
  }
  return new Refusing({ events, state: { onChange: nothing } } as unknown as ContainerRuntimeOptions);
}

for (const what of ["stop", "remove"] as const) {
  test(`${what}: a failure is caused by the engine's exit if it stopped or was replaced in between`, async (t) => {
    const away = await failureOf(
      refusing((events) => (events.error = new SvcError("unavailable", "away")))[what](app),
    );
    t.is(away.code, "unavailable");
    t.regex(away.message, /^the container engine stopped while app "web" was (stopped|removed)$/);
    t.is((await failureOf(refusing((events) => events.generation++)[what](app))).code, "unavailable");
    t.is(await failureOf(refusing(() => undefined)[what](app)), refusal);
  });
}
