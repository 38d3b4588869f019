/** Tests that need a container engine, and one engine for all tests of a file. */
import test from "ava";
import { startEngine, whyNoDocker, type EngineOptions, type TestEngine } from "./docker.ts";

/** For titles of tests that need the engine. */
export const needsDocker = whyNoDocker === undefined ? "" : ` (skipped: ${whyNoDocker})`;
/** `test` if an engine can run, otherwise `test.skip`; end its titles with {@link needsDocker}. */
export const dockerTest = whyNoDocker === undefined ? test : test.skip;

/**
 * One engine for all tests of a file, for its top level: `const engine = sharedEngine()`. It starts before the first
 * test and stops after the last; tests get it by calling the returned function.
 */
export function sharedEngine(options: EngineOptions = {}): () => TestEngine {
  const shared: { engine?: TestEngine } = {};
  if (whyNoDocker === undefined) {
    test.before(async () => {
      shared.engine = await startEngine(options);
    });
    test.after.always(() => shared.engine?.[Symbol.asyncDispose]());
  }
  return () => {
    if (shared.engine === undefined) throw new Error("the engine exists only during tests");
    return shared.engine;
  };
}
