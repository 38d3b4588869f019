/** Fixtures that share the file's helpers; separate from the fixture itself, which programs without AVA also use. */
import { sharedUserHelpers } from "../../support/shared-user-helpers.ts";
import { Fixture } from "./fixture.ts";

/** For the top level of a file: `const createFixture = sharedFixtures()`. */
export function sharedFixtures(): typeof Fixture.create {
  const userHelpers = sharedUserHelpers();
  return (options) => Fixture.create({ userHelpers: userHelpers(), ...options });
}
