"""What every page says of a checkpoint that it wrote: where it lies, and how it is opened."""

from pathlib import Path

import streamlit as st

from app import session


def written(place: Path, beside: str = "") -> None:
    """Where it lies, with what beside it; a button for either side of the pair."""
    more = f", with {beside}" if beside else ""
    st.markdown(f"Written: `{place}`{more}. It loads in transformers, and opens here as a folder.")
    with st.container(horizontal=True):
        for name in (session.A, session.B):
            st.button(
                f"Open as {name.upper()}",
                on_click=session.assign,
                kwargs={name: place.name},
                icon=":material/folder_open:",
                key=session.local("open-as", name, place.name),
            )
