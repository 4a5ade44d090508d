"""The frame: pages in the sidebar, the pair in use, the device, the running jobs."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:  # `streamlit run` puts app/ on the path, not the root
    sys.path.insert(0, str(ROOT))

import streamlit as st  # noqa: E402

from app import inputs, outputs, session  # noqa: E402

LOGO = ROOT / "assets" / "logo.svg"
FIRST = "models"
PAGES = {  # by section: file and address, title, icon
    "Models": [(FIRST, "Models", "compare_arrows")],
    "Coordinates": [
        ("atlas", "Atlas", "map"),
        ("lab", "Lab", "experiment"),
        ("residual", "Residual", "grid_on"),
        ("neurons", "Neurons", "scatter_plot"),
        ("heads", "Heads", "schema"),
    ],
    "Between two models": [
        ("alignment", "Alignment", "align_horizontal_left"),
        ("barrier", "Barrier", "landscape"),
    ],
    "Layers": [
        ("layers", "Layers", "layers"),
        ("cutting", "Cutting", "content_cut"),
        ("gap", "Gap in training", "stacked_line_chart"),
    ],
    "Results": [("published", "Published and measured here", "fact_check")],
}

st.set_page_config(page_title="Gaugescope", page_icon=str(LOGO), layout="wide")
st.logo(str(LOGO), size="large")

session.hold()
with st.sidebar:  # before the navigation, which writes the address
    inputs.choose_pair()
    inputs.choose_device()
    outputs.sidebar_jobs()

page = st.navigation(
    {
        section: [
            st.Page(
                ROOT / "pages" / f"{name}.py",
                title=title,
                icon=f":material/{icon}:",
                url_path=name,
                default=name == FIRST,
            )
            for name, title, icon in rows
        ]
        for section, rows in PAGES.items()
    }
)

replaced = st.container(key="replaced")
session.arrive(page.url_path)
page.run()
with replaced:
    outputs.replaced()
