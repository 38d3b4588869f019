/**
 * Stands in for the daemon in tests that need another environment: other privileges, another passwd file, inherited
 * descriptors. Argument: JSON `{uid, argv?, options?}`. Prints one line of JSON: the command's output, or the error.
 */
import { SvcError } from "../../../src/errors.ts";
import { type UserHelpersOptions, createUserHelpers } from "../../../src/run-as/user-helpers.ts";

const { uid, argv, options } = JSON.parse(process.argv[2] ?? "") as {
  uid: number;
  argv: string[];
  options?: UserHelpersOptions;
};

try {
  await using userHelpers = createUserHelpers(options);
  const user = await userHelpers.as(uid);
  const { stdout, exitCode } = await user.runCommand(argv);
  console.log(JSON.stringify({ stdout, exitCode }));
} catch (error) {
  if (!(error instanceof SvcError)) throw error;
  console.log(JSON.stringify({ code: error.code, message: error.message }));
}
