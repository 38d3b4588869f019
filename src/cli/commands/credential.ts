/** `svc credential …`: logins that the daemon uses at private git hosts and registries for your apps. */
import { Option, type Command } from "commander";
import { CredentialKinds, type CredentialKind } from "../../../gen/svc/v1/values.ts";
import type { CommandContext } from "../context.ts";
import type { RunCommand } from "../run-command.ts";
import { readSecret } from "../input/read-secret.ts";
import type { Column } from "../output/table.ts";
import { calls, type Credential } from "../client/calls.ts";

interface AddOptions {
  readonly kind: CredentialKind;
  readonly username: string;
  readonly secretFile?: string;
}

const secretQuestion = { what: "password", prompt: "Password or token: ", option: "--secret-file" };

export function addCredentialCommand(parent: Command, run: RunCommand): void {
  const credential = parent
    .command("credential")
    .description("list, add and remove logins of private git hosts and registries");
  credential
    .command("list", { isDefault: true })
    .alias("ls")
    .description("list your credentials, without secrets (also: svc credential)")
    .action(run(list));
  credential
    .command("add")
    .description("add or replace a credential; only your apps use it")
    .argument("<name>", "name of the credential")
    .argument("<host>", "the host to use it for: host or host:port")
    .requiredOption("-u, --username <name>", "the user name on that host")
    .addOption(new Option("--kind <kind>", "what it is for").choices(CredentialKinds).default("git"))
    .option("--secret-file <path>", "read the password or token from a file, - for stdin (default: ask)")
    .addHelpText(
      "after",
      "\nExample: svc credential add forge git.example.org -u me --secret-file - < token\n",
    )
    .action(run(add));
  credential
    .command("remove")
    .alias("rm")
    .description("remove a credential")
    .argument("<name>", "the credential")
    .action(run(remove));
}

const columns: readonly Column<Credential>[] = [
  { title: "NAME", value: ({ name }) => name },
  { title: "KIND", value: ({ kind }) => kind },
  { title: "HOST", value: ({ host }) => host },
  { title: "USERNAME", value: ({ username }) => username },
];

async function list(context: CommandContext): Promise<void> {
  const answer = await context.call(calls.listCredentials, {});
  if (context.json) return context.printJson(answer);
  const owners = new Set(answer.credentials.map((each) => each.owner));
  const owner: Column<Credential> = {
    title: "OWNER",
    value: (each) => String(each.owner),
    isHidden: owners.size <= 1,
  };
  const none = "No credentials yet. Add one: svc credential add NAME HOST --username USER";
  return context.printTable([...columns, owner], answer.credentials, none);
}

async function add(
  context: CommandContext,
  name: string,
  host: string,
  { kind, username, secretFile }: AddOptions,
): Promise<void> {
  const secret = await readSecret(context, secretFile, secretQuestion);
  const credential = await context.call(calls.upsertCredential, { name, kind, host, username, secret });
  return context.printResult(credential, `Added ${credential.name} for ${credential.host}`);
}

async function remove(context: CommandContext, name: string): Promise<void> {
  const answer = await context.call(calls.removeCredential, { name });
  return context.printResult(answer, `Removed ${answer.name}`);
}
