/** Tests that need a container engine, and one engine for a whole file of them. */
import test from "ava";
import { startEngine, whyNoDocker, type EngineOptions, type TestEngine } from "./docker.ts";

/** For titles of tests that need the engine. */
export const needsDocker = whyNoDocker === undefined ? "" : ` (skipped: ${whyNoDocker})`;
/** `test` where an engine can run, else `test.skip`; end its titles with {@link needsDocker}. */
export const dockerTest = whyNoDocker === undefined ? test : test.skip;

/**
 * One engine for all tests of a file, for its top level: `const engine = sharedEngine()`. It starts before the first test
 * and goes after the last; tests get it by calling what this returns.
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
    if (shared.engine === undefined) throw new Error("the engine is there for tests only");
    return shared.engine;
  };
}
