/**
 * A daemon's stand-in for tests that need another environment: other rights, another passwd file, foreign descriptors.
 * Argument: JSON `{uid, argv?, options?}`. Prints one line of JSON: the command's output, or the error.
 */
import { SvcError } from "../../../src/errors.ts";
import { type IdentitiesOptions, createIdentities } from "../../../src/identity/identities.ts";

const { uid, argv, options } = JSON.parse(process.argv[2] ?? "") as {
  uid: number;
  argv: string[];
  options?: IdentitiesOptions;
};

try {
  await using identities = createIdentities(options);
  const user = await identities.as(uid);
  const { stdout, exitCode } = await user.runCommand(argv);
  console.log(JSON.stringify({ stdout, exitCode }));
} catch (error) {
  if (!(error instanceof SvcError)) throw error;
  console.log(JSON.stringify({ code: error.code, message: error.message }));
}
