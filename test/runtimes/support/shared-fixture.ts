/** Fixtures whose helpers are those of the file; apart from the fixture itself, as that serves programs that AVA does not run. */
import { sharedIdentities } from "../../support/shared-identities.ts";
import { Fixture } from "./fixture.ts";

/** For the top level of a file: `const createFixture = sharedFixtures()`. */
export function sharedFixtures(): typeof Fixture.create {
  const identities = sharedIdentities();
  return (options) => Fixture.create({ identities: identities(), ...options });
}
