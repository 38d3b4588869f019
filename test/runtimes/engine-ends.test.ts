/** Work on an app's containers in which the engine ends fails since it ended, whatever the engine says last. */
import test from "ava";
import { SvcError } from "../../src/errors.ts";
import { ContainerRuntime, type ContainerRuntimeOptions } from "../../src/runtimes/container-runtime.ts";
import type { RunnableApp } from "../../src/runtimes/runtime.ts";
import { failureOf } from "./support/container-tests.ts";

const app = { id: "web" } as RunnableApp;
const refusal = new SvcError("not_possible", "the container engine could not stop it: context canceled");

type Ending = Pick<ContainerRuntime, "stop" | "remove">;

/** A runtime of which all work is refused, in which `happens` to its engine. */
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
  test(`${what}: a refusal is the engine's end where that ends or was another one meanwhile`, async (t) => {
    const away = await failureOf(
      refusing((events) => (events.error = new SvcError("unavailable", "away")))[what](app),
    );
    t.is(away.code, "unavailable");
    t.regex(away.message, /^the container engine ended while app "web" was (stopped|removed)$/);
    t.is((await failureOf(refusing((events) => events.generation++)[what](app))).code, "unavailable");
    t.is(await failureOf(refusing(() => undefined)[what](app)), refusal);
  });
}
