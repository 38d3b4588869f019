/** The page: one tab's look at the node. */
import { render } from "preact";
import "./style.css";
import { route, startRouting } from "./route.ts";
import { session, signInByAddress } from "./session.ts";
import { texts } from "./texts.ts";
import { AppView } from "./views/app.tsx";
import { AppsView } from "./views/apps.tsx";
import { Frame } from "./views/frame.tsx";
import { InstallView } from "./views/install.tsx";
import { OverviewView } from "./views/overview.tsx";
import { SignInView } from "./views/sign-in.tsx";

function Page() {
  const { value } = session;
  if (value.kind === "working") return <p class="alone">{texts.signIn.working}</p>;
  if (value.kind === "out") return <SignInView message={value.message} />;
  const { api, node } = value;
  const at = route.value;
  return (
    <Frame node={node}>
      {at.view === "overview" && <OverviewView api={api} node={node} />}
      {at.view === "apps" && <AppsView node={node} />}
      {at.view === "install" && <InstallView api={api} />}
      {at.view === "app" && <AppView key={at.id} api={api} node={node} id={at.id} />}
    </Frame>
  );
}

const signingIn = signInByAddress();
startRouting();
render(<Page />, document.body);
await signingIn;
