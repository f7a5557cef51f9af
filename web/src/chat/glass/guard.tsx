// A view whose server answers in another form than it reads says so, and the page around it stays.

import { Component, type ComponentChildren } from "preact";

interface State {
  problem: string | null;
}

export class Guard extends Component<{ children: ComponentChildren }, State> {
  override state: State = { problem: null };

  static override getDerivedStateFromError(error: unknown): State {
    return { problem: error instanceof Error ? error.message : String(error) };
  }

  override render() {
    if (this.state.problem === null) return this.props.children;
    return <div class="trouble" role="alert"><p>The server answered in a form that this view does not read: {this.state.problem}</p></div>;
  }
}
