/** The texts of packages, where they come from, and what opens that. */
export const packageTexts = {
  title: "What there is to install",
  search: "Search what there is",
  none: "No source has such a package. Add a source, or install from a URL or a directory above.",
  counted: (shown: number, total: number) =>
    shown === total
      ? `${String(total)} ${total === 1 ? "package" : "packages"}.`
      : `${String(shown)} of ${String(total)} packages: say more of what you look for.`,
  failed: (source: string, error: string) => `The source ${source} could not be read: ${error}`,
  install: "Install",
  sources: "Sources",
  sourcesTitle: "Where packages come from",
  noSources: "There is no source: packages can be installed from a URL or a directory alone.",
  columns: {
    name: "Name",
    url: "Address",
    actions: "Actions",
    kind: "For",
    host: "Host",
    user: "User name there",
    owner: "Owner",
    updated: "Written",
  },
  configured: "in the configuration file",
  shipped: "comes with svc",
  addSource: "Add a source, or change its address",
  sourceName: "Name of the source",
  sourceNameHint: "Lower-case letters, digits, dots, dashes and underscores.",
  sourceUrl: "Address",
  sourceUrlHint:
    "A git repository, an https URL of an index.yaml, or a directory of this machine that holds one.",
  saveSource: "Save the source",
  remove: "Remove",
  removeSourceTitle: (name: string) => `Remove the source ${name}?`,
  removeSourceLoses: "What was installed from it stays; nothing more is found in it.",
  credentials: "What opens private hosts",
  noCredentials: "There is none: only what everybody may read can be fetched.",
  kinds: { git: "git repositories", registry: "container images" } as Readonly<Record<string, string>>,
  addCredential: "Add a credential, or change one",
  credentialName: "Name of the credential",
  credentialKind: "For",
  credentialHost: "Host",
  credentialHostHint:
    "It is shown to this host and no other, such as git.example.org or registry.example.org:5000.",
  credentialUser: "User name there",
  credentialSecret: "Password or token",
  credentialSecretHint: "It is stored, and never shown again. Write it anew to change it.",
  saveCredential: "Save the credential",
  removeCredentialTitle: (name: string) => `Remove the credential ${name}?`,
  removeCredentialLoses:
    "What it opens cannot be fetched any more. Nobody can read its secret to give it back.",
  saved: "Saved.",
};
